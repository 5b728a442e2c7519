"""What the kernel says of processes: time used, memory, state, when they were started.

Knows Linux's /proc; no jobs, no ranks.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_SLACK = 2 * 10**9  # nanoseconds by which the kernel's clocks may differ
_PAGE = os.sysconf("SC_PAGE_SIZE")
STATES = {
    "R": "computes", "S": "sleeps", "D": "waits for a disk", "T": "stopped", "t": "in a debugger",
    "Z": "ended", "X": "ended", "I": "idle",
}  # fmt: skip


@dataclass(frozen=True)
class Usage:
    """One look at a process: seconds of processor time, resident bytes, state ("" : gone), when it
    was looked at (nanoseconds, monotonic)."""

    state: str
    cpu: float = 0.0
    memory: int = 0
    at: int = 0
    start: int = 0

    def unless_begun_after(self, moment: int) -> Usage:
        """This, or of one that is gone where the process cannot be the one that gave a sign of life
        at ``moment`` (0: never): pids are used again, also after a boot."""
        awake = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self.start * 10**9 // _TICKS
        if moment and (moment > self.at + _SLACK or self.at - awake > moment + _SLACK):
            return Usage("")
        return self

    def share_since(self, before: Usage | None) -> float | None:
        """Processors that it has kept busy since ``before``; None where that cannot be said."""
        if before is None or before.start != self.start or self.at <= before.at:
            return None
        return max(0.0, self.cpu - before.cpu) / ((self.at - before.at) / 1e9)


def usage(pid: int) -> Usage:
    """Look at a process."""
    fields = _stat(pid)
    if not fields:
        return Usage("")
    ticks = int(fields[11]) + int(fields[12])
    return Usage(
        fields[0], ticks / _TICKS, int(fields[21]) * _PAGE, time.monotonic_ns(), int(fields[19])
    )


def started_at(pid: int) -> int:
    """Ticks after the boot at which it was started, which tells it from others with its number; 0
    for one that is gone, or has ended and was not collected yet."""
    fields = _stat(pid)
    return 0 if not fields or fields[0] in "ZX" else int(fields[19])


def deprived(pid: int) -> int:
    """Nanoseconds for which its main thread was ready to run and got no processor; 0 where the
    kernel does not count them."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def control_group(pid: int) -> str:
    """The control groups of a process, as text."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def boot_id() -> str:
    """Names this boot of the kernel."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def place() -> str:
    """Names the host, and the numbering of processes, that this process lives in: a directory may
    be shared by hosts and by containers."""
    return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"


def catches(pid: int, number: int) -> bool:
    """Has the process a handler of its own for this signal?"""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        return False
    return False


def thread_for(pid: int, number: int) -> int:
    """Its thread that lets this signal through and no other one; 0 where there is none."""
    wanted = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, number}
    mask = sum(1 << (n - 1) for n in wanted)
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii") as file:
                lines = dict(line.split(":", 1) for line in file)
            if int(lines["SigBlk"], 16) == mask:
                return int(thread)
    except (OSError, ValueError, KeyError):
        pass
    return 0


def sleeps_in(pid: int) -> str:
    """The function of the kernel that it sleeps in; "" where it does not, or that is not told."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return ""
    return "" if name == "0" else name


def _stat(pid: int) -> list[str]:
    """The fields after the name (see proc(5)); [] for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
