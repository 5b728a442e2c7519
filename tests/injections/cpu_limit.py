"""A share of a processor for a process: a control group of its own, which the kernel lets run for
some of every period only.

Knows both versions of control groups; needs root.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from injections import control_groups
from injections.control_groups import PREFIX

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PERIOD = 10_000  # microseconds


def _parent() -> Path:
    return _V1 if (_V1 / "cpu.cfs_quota_us").exists() or _V1.exists() else _V2


def why_not() -> str:
    """What keeps this process from making such groups; empty where nothing does."""
    return control_groups.why_not(_parent(), ("cpu.cfs_quota_us", "cpu.max"), "limit processors")


def enter(name: str, share: float) -> None:
    """The calling process gets so much of one processor from now on."""
    group = _parent() / (PREFIX + name)
    group.mkdir()
    quota = int(_PERIOD * share)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def remove(name: str) -> None:
    """Remove the group, whose processes have ended."""
    with contextlib.suppress(FileNotFoundError):
        (_parent() / (PREFIX + name)).rmdir()
