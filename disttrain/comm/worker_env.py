"""Which rank am I? The environment that launchers give their workers, read in one place.

Order: torchrun's names (ours too), Open MPI, MPICH, Slurm, MLX, Horovod, else a single process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from .. import context
from ..errors import ConfigError

STRICT_SLOT = "comm.strict"  # of a rank: whether its groups are strict where nobody says


@dataclass(frozen=True)
class WorkerEnv:
    """A worker's place in its job. ``job_fd``: the job segment, when our launcher started it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    job_fd: int | None = None
    restart_count: int = 0
    family: str = "none"


# family -> (rank, world size, local rank, local world size); "" where the launcher tells none
FAMILIES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    "MLX": ("MLX_RANK", "MLX_WORLD_SIZE", "", ""),
    "Horovod": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
}  # fmt: skip


def read_worker_env(env: Mapping[str, str] | None = None) -> WorkerEnv:
    """The place that the environment gives this process.

    Raises ``ConfigError`` for a half-set environment; warns when two launchers disagree.
    """
    env = os.environ if env is None else env
    found = [(name, _family(name, env)) for name in FAMILIES]
    present = [(name, place) for name, place in found if place is not None]
    # A program may name a meeting place only, and give rank and size as arguments.
    name, place = present[0] if present else ("none", (0, 1, 0, 1))
    for other, theirs in present[1:]:
        if theirs[:2] != place[:2]:
            warnings.warn(
                f"the environment names two places: {name} says rank {place[0]} of {place[1]}, "
                f"{other} says rank {theirs[0]} of {theirs[1]}; {name}'s is taken",
                stacklevel=2,
            )
    port = env.get("MASTER_PORT")
    job = env.get("DISTTRAIN_JOB_FD")
    return WorkerEnv(
        *place,
        master_addr=env.get("MASTER_ADDR", "127.0.0.1"),
        master_port=None if port is None else _number("MASTER_PORT", port),
        job_fd=None if job is None else _number("DISTTRAIN_JOB_FD", job),
        restart_count=_number(
            "TORCHELASTIC_RESTART_COUNT", env.get("TORCHELASTIC_RESTART_COUNT", "0")
        ),
        family=name,
    )


def strict_wanted(env: Mapping[str, str] | None = None) -> bool:
    """Whether groups are to be strict where nobody says: ``DISTTRAIN_STRICT``, or the rank's slot
    ``STRICT_SLOT`` (a simulation's)."""
    env = os.environ if env is None else env
    slots = context.current().slots
    return slots.get(STRICT_SLOT, env.get("DISTTRAIN_STRICT", "0") not in ("", "0"))


def _family(name: str, env: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    rank, size, local_rank, local_size = FAMILIES[name]
    have = [v for v in (rank, size) if v in env]
    if not have or (name != "torchrun" and len(have) < 2):
        return None
    if len(have) < 2:
        missing = size if rank in env else rank
        known = ", ".join(f"{v}={env[v]}" for v in FAMILIES[name] if v in env)
        raise ConfigError(
            f"worker environment: {known} is set, but {missing} is not; set both, or start the "
            "program with dtrun"
        )
    r, n = _number(rank, env[rank]), _number(size, env[size])
    if not 0 <= r < n:
        raise ConfigError(
            f"worker environment: {rank}={r} and {size}={n}; needed is 0 <= {rank} < {size}"
        )
    local = _number(local_rank, env[local_rank]) if local_rank in env else r
    of = _number(local_size, env[local_size]) if local_size in env else n
    return r, n, local, of


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"worker environment: {name}={text!r}; a number is needed") from None
