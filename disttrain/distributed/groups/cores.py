"""How many cores a rank takes where its launcher leaves every rank all of them.

dtrun and torchrun tell the ranks of a machine to take one thread each. MPI's and Slurm's launchers
do not, and a small product that four ranks cut in as many pieces as there are cores takes a
hundred times as long. What the environment says holds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from ...backends import blas, threads
from ...comm.job.worker_env import WorkerEnv

_LEAVE_ALL = ("Open MPI", "MPICH", "Slurm", "Horovod")  # launchers' families


def share_cores(place: WorkerEnv, env: MutableMapping[str, str] | None = None) -> None:
    """One thread for the BLAS of this rank, and of what it starts, if several ranks share the
    machine and nobody has said how many. The first rank of all says so."""
    env = os.environ if env is None else env
    several = place.family in _LEAVE_ALL and place.local_world_size > 1 and place.job_fd is None
    if not several or any(env.get(name) for name in blas.VARIABLES):
        return
    env.update(dict.fromkeys(blas.VARIABLES, "1"))
    before, told = blas.num_threads(), threads.set_count(1)
    if place.rank == 0 and before != 1:
        how = "BLAS takes one thread in each" if told else "set it: BLAS cannot be told any more"
        sys.stderr.write(
            f"disttrain: {place.local_world_size} ranks share this machine, and OMP_NUM_THREADS is "
            f"not set: {how}\n"
        )
