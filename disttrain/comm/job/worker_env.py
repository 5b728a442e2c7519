"""Which rank am I? The environment that launchers give their workers, read in one place.

Order: torchrun's names (ours too), Open MPI, MPICH, Slurm, MLX, Horovod, else a single process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ... import context, settings
from ...errors import ConfigError
from ...trace import warn
from . import slurm

TLS, TOKEN_FILE = settings.TLS.name, settings.TOKEN_FILE.name
STRICT_SLOT = "comm.strict"  # of a rank: whether its groups are strict where nobody says


@dataclass(frozen=True)
class WorkerEnv:
    """A worker's place in its job. ``job_fd``: the job segment, when our launcher started it.
    ``token_file``: the file with the job's token, which lets workers of several hosts meet;
    ``generation``: of the job's ranks, where our launcher counts them (else 0); ``tls``: whether
    what ranks of different hosts send each other is encrypted. These three keep others out, so
    nobody may leave them to a default: ``read_worker_env`` says what was asked for."""

    rank: int
    world_size: int
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    job_fd: int | None = None
    restart_count: int = 0
    family: str = "none"
    by_mpi: bool = False  # ranks meet through MPI, which has started them
    fake: bool = False  # a rank without peers: ``dtrun --fake``
    generation: int = field(kw_only=True)
    token_file: str | None = field(kw_only=True)
    tls: bool = field(kw_only=True)

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """``rank, world_size, local_rank, local_world_size``."""
        return self.rank, self.world_size, self.local_rank, self.local_world_size

    @classmethod
    def inside(cls, rank: int = 0, world_size: int = 1) -> WorkerEnv:
        """The place of a rank that shares a process with all others (a simulation), or has none:
        nothing that it says leaves the process."""
        return cls(rank, world_size, generation=0, token_file=None, tls=False)


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


def read_worker_env(
    env: Mapping[str, str] | None = None, rank: int = -1, world_size: int = -1
) -> WorkerEnv:
    """The place of this process: ``rank`` and ``world_size`` where the program gives them (not
    negative), else what the environment says. A program that gives both needs no environment.

    Raises ``ConfigError`` where one of the two is known and the other is not; warns when two
    launchers disagree.
    """
    env = settings.environment(env)
    launched = [(name, place) for name in FAMILIES if (place := _family(name, env))]
    if rank >= 0 or world_size >= 0:
        place, name = _given(rank, world_size, env, launched), "arguments"
    else:
        _check_half_set(env, launched)
        name, place = launched[0] if launched else ("none", (0, 1, 0, 1))
        _warn_of_others(name, place, launched, env)
    job, launcher = settings.JOB_FD.said(env), name
    if launched and place[:2] == launched[0][1][:2]:
        launcher = launched[0][0]  # the program gives what it was told
    elif launched:
        job = None  # the program makes a world of its own
    address, port = _meeting_place(env, launcher)
    generation = settings.GENERATION
    return WorkerEnv(
        *place,
        master_addr=address,
        master_port=port,
        job_fd=None if job is None else _number(settings.JOB_FD.name, job),
        restart_count=_number(
            "TORCHELASTIC_RESTART_COUNT", env.get("TORCHELASTIC_RESTART_COUNT", "0")
        ),
        generation=0 if job is None else _number(generation.name, generation.text(env)),
        family=name,
        token_file=token_file_told(env),
        by_mpi=_by_mpi(env, launcher),
        tls=tls_wanted(env),
        fake=settings.FAKE.flag(env),
    )


def token_file_told(env: Mapping[str, str] | None = None) -> str | None:
    """The file with the job's token, where there is one."""
    return settings.TOKEN_FILE.said(env) or None


def tls_wanted(env: Mapping[str, str]) -> bool:
    """Whether what ranks of different hosts send each other is to be encrypted."""
    return settings.TLS.flag(env)


def fixed_order_wanted(env: Mapping[str, str] | None = None) -> bool | None:
    """Whether MPI is to sum in the order of the tree (``DISTTRAIN_FIXED_ORDER``: 1 or 0); None
    where nobody says."""
    said = settings.FIXED_ORDER.text(env)
    return None if said == "" else said != "0"


def _meeting_place(env: Mapping[str, str], name: str) -> tuple[str, int | None]:
    """The address and port of the store: as the environment says, or what follows from Slurm's
    step, where it has started this process without MPI."""
    address, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT")
    if port is not None:
        return address or slurm.LOOPBACK, _number("MASTER_PORT", port)
    found = slurm.meeting_place(env) if name == "Slurm" else None
    if found is None:
        return address or slurm.LOOPBACK, None
    return address or found[0], found[1]


def _by_mpi(env: Mapping[str, str], name: str) -> bool:
    """Has MPI started this process, and no other place been named where ranks meet? Slurm says it
    of PMIx only; with PMI-2 it looks like MPICH."""
    if settings.BY_MPI.text(env) == "1":
        return True
    pmix = name == "Slurm" and "PMIX_RANK" in env
    return "MASTER_PORT" not in env and (pmix or name in ("Open MPI", "MPICH"))


def strict_wanted(env: Mapping[str, str] | None = None) -> bool:
    """Whether groups are to be strict where nobody says: ``DISTTRAIN_STRICT``, or the rank's slot
    ``STRICT_SLOT`` (a simulation's)."""
    slots = context.current().slots
    return slots.get(STRICT_SLOT, settings.STRICT.flag(env))


Place = tuple[int, int, int, int]  # rank, world size, local rank, local world size


def _family(name: str, env: Mapping[str, str]) -> Place | None:
    """The place that one launcher tells; None where it does not tell both numbers."""
    rank, size, local_rank, local_size = FAMILIES[name]
    if rank not in env or size not in env:
        return None
    r, n = _number(rank, env[rank]), _number(size, env[size])
    if not 0 <= r < n:
        raise ConfigError(
            f"worker environment: {rank}={r} and {size}={n}; needed is 0 <= {rank} < {size}"
        )
    if local_rank not in env and "SLURM_LOCALID" in env:  # MPI's ranks, started by srun
        local_rank = "SLURM_LOCALID"
    local = _number(local_rank, env[local_rank]) if local_rank in env else r
    beside = slurm.tasks_here(env) if local_rank == "SLURM_LOCALID" else None
    of = _number(local_size, env[local_size]) if local_size in env else beside or n
    return r, n, local, of


def _given(
    rank: int, size: int, env: Mapping[str, str], launched: list[tuple[str, Place]]
) -> Place:
    """The place that the program gives, completed from the environment."""
    if rank < 0:
        rank = launched[0][1][0] if launched else _number("RANK", env.get("RANK", "-1"))
    if size < 0:
        size = launched[0][1][1] if launched else _number("WORLD_SIZE", env.get("WORLD_SIZE", "-1"))
    if not 0 <= rank < size:
        shown = ", ".join(
            f"{name}={'not given' if value < 0 else value}"
            for name, value in (("rank", rank), ("world_size", size))
        )
        raise ConfigError(
            f"init_process_group: {shown}; needed is 0 <= rank < world_size "
            "(give both, or start the program with dtrun)"
        )
    local = env.get("LOCAL_RANK"), env.get("LOCAL_WORLD_SIZE")
    return (
        rank,
        size,
        rank if local[0] is None else _number("LOCAL_RANK", local[0]),
        size if local[1] is None else _number("LOCAL_WORLD_SIZE", local[1]),
    )


def _check_half_set(env: Mapping[str, str], launched: list[tuple[str, Place]]) -> None:
    """RANK without WORLD_SIZE, or the other way, means nothing where the program gives nothing."""
    have = [v for v in FAMILIES["torchrun"][:2] if v in env]
    if len(have) == 1 and not launched:
        missing = "WORLD_SIZE" if have == ["RANK"] else "RANK"
        known = ", ".join(f"{v}={env[v]}" for v in FAMILIES["torchrun"] if v in env)
        raise ConfigError(
            f"worker environment: {known} is set, but {missing} is not; set both, give rank= and "
            "world_size=, or start the program with dtrun"
        )


def _warn_of_others(
    name: str, place: Place, launched: list[tuple[str, Place]], env: Mapping[str, str]
) -> None:
    if (
        "TORCHELASTIC_RUN_ID" in env
    ):  # a rank of a launcher that another one has started: one a node
        return
    for other, theirs in launched[1:]:
        if theirs[:2] != place[:2]:
            warn(
                f"the environment names two places: {name} says rank {place[0]} of {place[1]}, "
                f"{other} says rank {theirs[0]} of {theirs[1]}; {name}'s is taken",
            )


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"worker environment: {name}={text!r}; a number is needed") from None
