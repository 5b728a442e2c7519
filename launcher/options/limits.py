"""What this machine allows a job, and which limit an error of the system speaks of.

``--print-limits`` shows the table. Knows Linux; no ranks but their number.
"""

from __future__ import annotations

import errno
import os
import resource

FILES_PER_RANK, FILES_OF_OUR_OWN = 6, 64  # pipes, logs and a pidfd; modules, sockets
_CGROUPS = "/proc/self/cgroup"


def raise_open_files() -> tuple[int, int]:
    """Let this process open as many files as it may; what the limits were, for its children."""
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return before


def restore_open_files(before: tuple[int, int]) -> None:
    """In a child: the limits that its parent was given."""
    if before[1] and resource.getrlimit(resource.RLIMIT_NOFILE) != before:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def advice(error: OSError, num_ranks: int) -> str:
    """Which limit an error in starting ``num_ranks`` ranks speaks of, and what they need."""
    files = FILES_OF_OUR_OWN + FILES_PER_RANK * num_ranks
    known = {
        errno.EMFILE: f"a process may open {_limit(resource.RLIMIT_NOFILE, True)} files (ulimit -n)"
        f"; {files} are needed",
        errno.ENFILE: f"the machine may open {_read('/proc/sys/fs/file-max')} files (fs.file-max)",
        errno.EAGAIN: f"{_limit(resource.RLIMIT_NPROC)} processes are allowed (ulimit -u), and "
        f"{pids_max()} in this control group (pids.max); {num_ranks + 3} and the threads of each "
        "are needed",
        errno.ENOMEM: f"memory is short (ulimit -v: {_limit(resource.RLIMIT_AS)}; the control "
        "group's memory limit; vm.overcommit_memory)",
        errno.EFBIG: f"files may have {_limit(resource.RLIMIT_FSIZE)} bytes (ulimit -f), which "
        "counts for shared memory, too",
        errno.ENOSPC: "no space is left there (df, and df -i)",
        errno.EDQUOT: "the quota is used up there",
    }
    return known.get(error.errno or 0, "see dtrun --print-limits")


def pids_max() -> str:
    """How many processes the control group of this one may have."""
    for line in _read(_CGROUPS).splitlines():
        _, kinds, path = line.split(":", 2)
        for mount in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
            if "pids" in kinds.split(",") or not kinds:
                for folder in (mount + path.rstrip("/"), mount):
                    if text := _read(f"{folder}/pids.max"):
                        return text
    return "no known limit"


def table() -> str:
    """All of them, for people."""
    return rows(
        [
            ("open files of a process (ulimit -n)", _limit(resource.RLIMIT_NOFILE, True)),
            ("open files of the machine (fs.file-max)", _read("/proc/sys/fs/file-max")),
            ("processes of this user (ulimit -u)", _limit(resource.RLIMIT_NPROC)),
            ("processes of the control group (pids.max)", pids_max()),
            ("processes of the machine (kernel.pid_max)", _read("/proc/sys/kernel/pid_max")),
            ("bytes of a file, or of shared memory (ulimit -f)", _limit(resource.RLIMIT_FSIZE)),
            ("bytes of addresses (ulimit -v)", _limit(resource.RLIMIT_AS)),
            ("bytes locked in memory (ulimit -l)", _limit(resource.RLIMIT_MEMLOCK)),
            ("cores that this process may use", str(len(os.sched_getaffinity(0)))),
        ]
    )


def rows(pairs: list[tuple[str, str]]) -> str:
    """Names and values in two columns."""
    return "\n".join(f"{name:48}  {value}" for name, value in pairs)


def _limit(which: int, hard: bool = False) -> str:
    value = resource.getrlimit(which)[hard]
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
