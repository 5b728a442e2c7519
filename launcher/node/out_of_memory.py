"""Which ranks the kernel has killed for want of memory: nothing else tells that SIGKILL apart.

The kernel counts its kills in the control group (cgroup) of the process that it has chosen. A
process that has ended belongs to none any more, so a rank's group is looked up while it lives.

Knows Linux and both versions of control groups; knows nothing of jobs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

_MOUNTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")  # of version 1, and of version 2
_COUNTS = ("memory.events.local", "memory.events", "memory.oom_control")
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_NONE = 1 << 60  # version 1 shows a limit beyond that where there is none
_WHOLE_MACHINE = "/proc/vmstat"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def group_of(pid: int) -> str:
    """The folder of the memory control group of a process; empty where there is none."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if "memory" not in kinds.split(",") and kinds:
            continue
        for mount in _MOUNTS:
            for folder in (mount + path.rstrip("/"), mount):  # a container may see its own as root
                if any(os.path.exists(f"{folder}/{name}") for name in _COUNTS):
                    return folder
    return ""


def kills_in(group: str) -> int:
    """How often the kernel has killed a process of ``group``; of the machine, where there is
    none."""
    texts = (_read(f"{group}/{name}") for name in _COUNTS) if group else ()
    for text in (*texts, _read(_WHOLE_MACHINE)):
        for line in text.splitlines():
            word, _, count = line.partition(" ")
            if word == "oom_kill":
                return int(count)
    return 0


def limit_of(group: str) -> int | None:
    """The bytes that all processes of ``group`` may have together; None: as many as there are."""
    for name in _LIMITS if group else ():
        text = _read(f"{group}/{name}").strip()
        if text.isdigit() and int(text) < _NONE:
            return int(text)
    return None


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


@dataclass
class _Seen:
    group: str
    resident: int


class Kills:
    """Looks at processes while they live, and says of one that got SIGKILL whether the kernel did
    it for want of memory."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._known: dict[str, int] = {}  # kills of each group that are no news

    def look(self, pids: Iterable[int]) -> None:
        """Look at all of them."""
        for pid in pids:
            with contextlib.suppress(ValueError):  # it ends just now
                group, resident = group_of(pid), _resident(pid)
                if resident:
                    self._seen[pid] = _Seen(group, resident)
                    if group not in self._known:
                        self._known[group] = kills_in(group)

    def why(self, pid: int) -> str:
        """What the process ``pid``, which SIGKILL has ended, was killed for; empty where the kernel
        did not do it."""
        seen = self._seen.pop(pid, None)
        if seen is None or kills_in(seen.group) <= self._known[seen.group]:
            return ""
        self._known[seen.group] += 1
        limit = limit_of(seen.group)
        at_most = f"limit {limit >> 20} MiB" if limit is not None else "no limit of its own"
        where = f"memory cgroup {seen.group or 'none'}, {at_most}"
        return (
            f"killed by SIGKILL, out of memory: the kernel has chosen process {pid} ({where}; "
            f"{seen.resident >> 20} MiB were resident when it was last seen)"
        )
