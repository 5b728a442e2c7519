"""How MPI begins in a rank: nobody waits for ever, and no name is left behind.

MPI_Init waits for all ranks of the job, and mpiexec does not tell it of one that has ended before
it came there. The process that has started the ranks of a host is the parent of all of them, so
each can see how many of them live.

Knows processes and environments; no MPI.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from .... import settings
from ...job import slurm

_LOOK_EVERY = 0.2
_HYDRA, _SLURM = "hydra_pmi_proxy", "slurmstepd"
_OPEN_MPI = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec")
_LOOKS = 5  # as often a rank must be missing: the others are started in a moment
_SHARED = "/dev/shm/mpich_"


@contextlib.contextmanager
def watched(timeout: float) -> Iterator[None]:
    """While the block runs, end this process where a rank of this host has ended, or ``timeout``
    seconds have passed. (MPI_Init cannot be broken off.)"""
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(done, timeout, lost()), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(done: threading.Event, timeout: float, is_lost: Callable[[], bool]) -> None:
    until, looks = time.monotonic() + timeout, 0
    while not done.wait(_LOOK_EVERY):
        looks = looks + 1 if is_lost() else 0
        if looks >= _LOOKS:
            _end("another rank of this host has ended before that; what it has said tells why")
        if time.monotonic() > until:
            _end(f"not all ranks have come in {timeout:g} s; every rank must call it")


def _end(why: str) -> None:
    env = settings.environment()
    who = env.get("PMI_RANK") or env.get("PMIX_RANK") or "?"
    text = f"rank {who} cannot begin: init_process_group waits in MPI_Init, and {why}\n"
    os.write(2, text.encode())
    unlink_memory()
    os._exit(1)


def lost() -> Callable[[], bool]:
    """Says whether a rank of this host has ended. Never where that cannot be known: what starts
    the ranks must be the parent of all of them, and say how many there are."""
    parent = os.getppid()
    count = _ranks_here(_name(parent), settings.environment())
    if count is None:
        return lambda: False
    return lambda: os.getppid() == parent and len(_living(parent)) < count


def _ranks_here(starter: str, env: Mapping[str, str]) -> int | None:
    """How many ranks ``starter`` has started on this host, where it is known to be their parent and
    tells."""
    if starter == _SLURM:
        return slurm.tasks_here(env)
    told = {_HYDRA: "MPI_LOCALNRANKS", **dict.fromkeys(_OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE")}
    count = env.get(told.get(starter, ""), "")
    return int(count) if count.isdigit() else None


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _living(parent: int) -> list[int]:
    """The children of a process that have not ended."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                found += [int(pid) for pid in file.read().split()]
    return [pid for pid in found if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def unlink_memory() -> None:
    """Take away the names of the memory that MPI shares between ranks of this host, which all of
    them have mapped: a job that is killed leaves none behind."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for path in {line.split(maxsplit=5)[-1].strip() for line in maps if _SHARED in line}:
            with contextlib.suppress(OSError):
                os.unlink(path)
