"""What will be started: the options resolved, as data. ``--dry-run`` prints it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields

from disttrain.liveness import STOPPED_LIMIT

from ..options.command_line import Options, Settings
from ..options.logs import streams_of
from .binding import as_ranges
from .generation import Generation
from .policy import GRACE


@dataclass(frozen=True)
class Plan(Settings):
    """One job on this machine."""

    num_ranks: int
    _: KW_ONLY
    face: str = ""  # a module whose ``install()`` gives ranks' programs other names to import
    preloads: tuple[str, ...] = ()  # modules that are loaded once, for all ranks
    observers: tuple[str, ...] = ()  # those of them whose ``begin()`` ranks call before all else
    spawn: bool = False
    # What no other job has, also when this one is started anew; with several nodes the first one's.
    job: str = field(default_factory=lambda: os.urandom(6).hex())
    shown: tuple[int, ...] | None = None
    stopped_timeout: float = STOPPED_LIMIT
    grace: float = GRACE  # seconds that the others have to end by themselves after a failure
    open_files: tuple[int, int] = (0, 0)  # the limits that ranks are given; 0: the launcher's
    cores: tuple[tuple[int, ...], ...] = ()  # of each rank; none: any
    devices: tuple[str, ...] = ()  # what each rank sees alone (CUDA_VISIBLE_DEVICES); none: all
    mpi_hosts: tuple[tuple[str, int], ...] = ()  # (host, ranks), where some are elsewhere
    kept_fd: int = -1  # where ranks of several nodes keep what they have committed
    token_file: str = ""  # of a job on several nodes, for its ranks
    debugger: str = ""  # where the agent listens for ranks that stop to debug

    @property
    def writes_files(self) -> bool:
        """Does the output of any rank go to a file?"""
        texts = (self.redirects, self.tee)
        if any(self.duplicates):
            return True
        return any(streams_of(text, rank) for text in texts for rank in range(self.num_ranks))

    @property
    def as_face(self) -> list[str]:
        """The flag that asks for its ``face``."""
        return [f"--as-{self.face.rpartition('.')[2]}"] if self.face else []

    def alone(self) -> Generation:
        """The first generation of a job on this machine alone."""
        return Generation(
            (self.num_ranks,), master_addr=self.master_addr, master_port=self.master_port
        )

    def attempt_dir(self, generation: Generation) -> str:
        """Where the files of a generation of this node go."""
        assert self.log_dir is not None
        node = f"node_{generation.me}" if generation.num_nodes > 1 else ""
        return os.path.join(self.log_dir, node, f"attempt_{generation.number - 1}")

    def rank_dir(self, generation: Generation, rank: int) -> str:
        """Where a rank's files go."""
        return os.path.join(self.attempt_dir(generation), str(generation.local_rank(rank)))

    def error_file(self, generation: Generation, rank: int) -> str:
        return os.path.join(self.rank_dir(generation, rank), "error.json")


def make_plan(
    options: Options, master_port: int, face: str = "", preloads: tuple[str, ...] = (),
    observers: tuple[str, ...] = (),
) -> Plan:  # fmt: skip
    """Resolve what the options leave open: the port (given here), the job's ids."""
    same = {setting.name: getattr(options, setting.name) for setting in fields(Settings)}
    resolved = same | {"run_id": _run_id(options), "master_port": master_port}
    return Plan(
        **resolved,
        job=_job_id(options),
        num_ranks=options.nproc_per_node,
        face=face,
        preloads=(*preloads, *observers),
        observers=observers,
        spawn=options.start_method == "spawn",
        shown=options.local_ranks_filter,
    )


def _job_id(options: Options) -> str:
    """A new one; or what follows from the name that the job keeps when its environment starts it
    anew, and from the command, since a script of one job may start several after each other."""
    if not options.place.lasting:
        return os.urandom(6).hex()
    import uuid  # which few jobs need

    text = "\0".join([options.place.lasting, *options.program])
    return uuid.uuid5(uuid.NAMESPACE_URL, text).hex[:12]


def _run_id(options: Options) -> str:
    """One that is given, or that all nodes have alike, or a new one."""
    if options.run_id != "none" or options.rendezvous is not None:
        return options.run_id
    return os.urandom(6).hex()


def reserve_port(host: str = "127.0.0.1") -> socket.socket:
    """A socket that keeps a free port for MASTER_PORT as long as it is open. ``host`` "": of all
    addresses of this machine.

    Ranks of ours meet in the job segment and need no port, scripts may. The socket is bound but
    does not listen, and Linux lets others with SO_REUSEADDR (every server sets it) bind and listen
    there meanwhile; nobody else is given the port by chance.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    return holder


def describe(plan: Plan, env_of: Callable[[Plan, Generation, int], dict[str, str]]) -> str:
    """The plan for people."""
    logs = plan.log_dir or ("a new temporary directory" if plan.writes_files else "none")
    kind = "module" if plan.module else "executable" if plan.no_python else "script"
    lines = [
        f"{kind}: {' '.join(plan.program)}",
        f"ranks: {plan.num_ranks} on this machine, "
        + ("each a fresh Python" if plan.spawn else "forked from one warm process"),
        *(["the ranks are an MPI job: mpiexec tells them of each other"] if plan.mpi else []),
        *([f"goes on with at least {plan.min_ranks} ranks"] if plan.min_ranks else []),
        *(["a rank that fails is started anew, and joins the others"] * plan.replace_ranks),
        *(["SIGTERM: ranks have time to save"] * (plan.on_term == "checkpoint")),
        f"restarts: {plan.max_restarts}; ranks asked to end are killed after "
        f"{plan.shutdown_timeout:g} s",
        f"logs: {logs}",
    ]
    for rank in range(plan.num_ranks):
        lines.append(f"rank {rank}:")
        if plan.cores:
            lines.append(f"  on cores {as_ranges(plan.cores[rank])}")
        lines += [f"  {k}={v}" for k, v in env_of(plan, plan.alone(), rank).items()]
    return "\n".join(lines)
