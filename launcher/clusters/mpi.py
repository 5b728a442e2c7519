"""MPI: ``mpiexec -ppn 1 dtrun train.py``, one process on each node.

``mpiexec`` says which process one is and how many there are, in names of its kind; it does not say
where the first one is. That is told by MPI itself, once, before anything else starts
(``mpi_meeting``, a process of its own: MPI may be started once only, and not in the parent of the
ranks). The token follows from a number that travels with it, and from the user's key in the home
directory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping

from .placement import Place, number

ENDS = "by SIGTERM, where mpiexec sends it; mpiexec kills all nodes when it is interrupted"
_SECONDS = 60.0  # for all nodes to come
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_meeting.py")

# (rank, size, processes on this machine) by Open MPI, by MPICH and Intel MPI
FAMILIES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)

Told = tuple[str, str]  # where the nodes meet, as host:port; the job's number


def matches(env: Mapping[str, str]) -> bool:
    """Has mpiexec started several processes, of which we are one?"""
    return (_numbers(env) or (0, 1, 1))[1] > 1


def place(env: Mapping[str, str], ask: Callable[[], Told] | None = None) -> Place:
    """Our place among the processes of mpiexec. ``ask`` has MPI tell where they meet; it is not
    asked where there is nothing to tell."""
    numbers = _numbers(env)
    if numbers is None:
        raise ValueError(
            "--cluster mpi: mpiexec has not started this process "
            f"({', '.join(names[0] for names in FAMILIES)} not set); "
            "put it before dtrun: mpiexec -ppn 1 dtrun train.py"
        )
    rank, size, here = numbers
    first, job = (ask or told_by_mpi)() if size > 1 and here == 1 else ("", "")
    return Place(
        cluster="mpi",
        num_nodes=size,
        first=first,
        node_rank=rank,
        job=f"mpi-{job[:12]}" if job else "",
        ends=ENDS,
        label=f"mpi {job}" if job else "",
        doubt=_doubt(size, here),
    )


def _numbers(env: Mapping[str, str]) -> tuple[int, int, int] | None:
    for rank, size, here in FAMILIES:
        told = number(env, rank), number(env, size)
        if told[0] is not None and told[1] is not None:
            return told[0], told[1], number(env, here) or 1
    return None


def _doubt(size: int, here: int) -> str:
    if here == 1:
        return ""
    return (
        f"mpiexec has started {here} processes on this machine, and dtrun starts a node's ranks "
        "itself: one on each is needed (mpiexec -ppn 1 dtrun --nproc-per-node N ...; Open MPI: "
        "--map-by ppr:1:node); --cluster local if each is a job of its own"
    )


def told_by_mpi() -> Told:
    """Where the first one is, as MPI tells it to all. Raises ``ValueError``."""
    import subprocess  # which a start without MPI need not load

    fds = [int(os.environ["PMI_FD"])] if os.environ.get("PMI_FD", "").isdigit() else []
    words = [sys.executable, "-P", _PROGRAM]  # -P: files beside it are named as packages are
    how = "give --rdzv-endpoint HOST:PORT and --nnodes, or install mpi4py: 'disttrain[mpi]'"
    try:
        asked = subprocess.run(
            words, capture_output=True, text=True, timeout=_SECONDS, check=False, pass_fds=fds
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"--cluster mpi: MPI has not met in {_SECONDS:g} s; {how}") from None
    if asked.returncode:
        said = asked.stderr.strip().splitlines()[-1:] or [f"exit code {asked.returncode}"]
        raise ValueError(
            f"--cluster mpi: MPI cannot tell where the first node is: {said[0]}; {how}"
        )
    first, job = json.loads(asked.stdout.splitlines()[-1])
    return first, job
