"""A limit for the memory of a process, of the kind that schedulers and containers set: a control
group of its own. The kernel kills whoever needs more.

Knows both versions of control groups; needs root.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from injections import control_groups
from injections.control_groups import PREFIX

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def _parent() -> tuple[Path, str]:
    """Where groups are made, and the name of their limit."""
    if (_V1 / "memory.limit_in_bytes").exists():
        return _V1, "memory.limit_in_bytes"
    return _V2, "memory.max"


def why_not() -> str:
    """What keeps this process from making such groups; empty where nothing does."""
    parent, limit = _parent()
    return control_groups.why_not(parent, (limit,), "count memory")


def enter(name: str, nbytes: int) -> None:
    """The calling process may have so much more memory from now on."""
    parent, limit = _parent()
    group = parent / (PREFIX + name)
    group.mkdir()
    (group / limit).write_text(str(nbytes))
    for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
        with contextlib.suppress(OSError):
            (group / swap).write_text(str(nbytes if "memsw" in swap else 0))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def remove(name: str) -> None:
    """Remove the group, whose processes have ended."""
    with contextlib.suppress(FileNotFoundError):
        (_parent()[0] / (PREFIX + name)).rmdir()
