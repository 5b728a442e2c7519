"""All-reduce of ranks under MPI: through us, over MPI and over shared memory, and by bare mpi4py.

    PYTHONPATH=scripts .venv/bin/python -m benchmarks.mpi [--ranks N] [--rounds N] [--kb N ...]

One job of mpiexec; the ways alternate in it, block by block, and the medians are printed with the
best blocks beside them (with more ranks than idle cores a median tells of the scheduler only). A
barrier is the check of headers and nothing else. Bare mpi4py reduces in place, as we do, and from
one array into another, as most programs have it; its ``Iallreduce`` is polled as ours is, which
lets other processes run while it waits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
import disttrain.distributed as dist
from disttrain.comm.transports import shm
from disttrain.comm.transports.mpi.connect import connect
from disttrain.comm.transports.mpi.engine import Told
from disttrain.comm.transports.mpi.station import station
from disttrain.distributed import ProcessGroup

SIZES = {4 << 10: 100, 16 << 10: 100, 64 << 10: 50, 256 << 10: 20, 1 << 20: 10,
         25 << 20: 1, 64 << 20: 1}  # bytes: calls a block  # fmt: skip
BLOCKS = 15


def ways(nbytes: int) -> dict[str, Callable[[], Any]]:
    """The ways to reduce an array of float32, by name."""
    here, x = station(), np.ones(nbytes // 4, np.float32)
    y, MPI, comm = x.copy(), here.MPI, here.world

    def polled() -> None:
        request = comm.Iallreduce(MPI.IN_PLACE, x)
        while not request.Test():
            os.sched_yield()

    over_mpi, over_memory = GROUPS
    tensor = dt.from_numpy(x)
    return {
        "ours, mpi": lambda: over_mpi.all_reduce(x),
        "dist.all_reduce, mpi": lambda: dist.all_reduce(tensor, group=over_mpi),
        "headers alone": over_mpi.barrier,
        "ours, shm": lambda: over_memory.all_reduce(x),
        "mpi4py in place": lambda: comm.Allreduce(MPI.IN_PLACE, x),
        "mpi4py": lambda: comm.Allreduce(x, y),
        "mpi4py polled": polled,
    }


GROUPS: list[ProcessGroup] = []


def measure(rounds: int, sizes: list[int]) -> None:
    """On each rank of the job: time all ways, print what rank 0 finds."""
    here = station()
    store: Any = Told(here, here.world)
    GROUPS.append(ProcessGroup(connect(here)))
    GROUPS.append(ProcessGroup(shm.connect_by_store(store, here.rank, here.size)))
    for nbytes in sizes:
        calls = SIZES[nbytes]
        found: dict[str, list[float]] = {}
        todo = ways(nbytes)
        for way in todo.values():
            way()
        for _ in range(rounds * BLOCKS):
            for name, way in todo.items():
                here.world.Barrier()
                start = time.perf_counter()
                for _ in range(calls):
                    way()
                found.setdefault(name, []).append((time.perf_counter() - start) / calls * 1e6)
        if here.rank == 0:
            cells = [f"{n} {statistics.median(t):.1f} ({min(t):.1f})" for n, t in found.items()]
            print(f"{nbytes >> 10} KB, us: " + "; ".join(cells), flush=True)
    for group in reversed(GROUPS):
        group.close()
    here.MPI.Finalize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    known = [nbytes >> 10 for nbytes in SIZES]
    parser.add_argument("--kb", type=int, nargs="+", choices=known, default=known)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure(given.rounds, [kb << 10 for kb in given.kb])
        return
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    job = [mpiexec, "-n", str(given.ranks), sys.executable, "-m", "benchmarks.mpi", "--worker"]
    sizes = ["--kb", *map(str, given.kb)]
    subprocess.run([*job, "--rounds", str(given.rounds), *sizes], check=True)


if __name__ == "__main__":
    main()
