"""A job that is to be submitted, as data: what all kinds of cluster need to know of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """``flags``: the options of ``dtrun`` that it is started with on every node; ``program``: the
    script or module with its arguments. ``nodes``: fewest and most. ``save_time``: seconds from the
    SIGTERM that announces the end to the end. ``restarts``: how often the cluster may start it
    again."""

    name: str
    program: tuple[str, ...]
    flags: tuple[str, ...] = ()
    nodes: tuple[int, int] = (1, 1)
    gpus: int = 0  # of each node
    cpus: int = 0  # of each node; 0: as the cluster gives
    memory: str = ""  # of each node
    save_time: int = 120
    restarts: int = 3
    written_by: str = ""  # the command, for who reads the result


@dataclass(frozen=True)
class Slurm:
    """What only Slurm needs to know. ``lines``: more options of sbatch; ``setup``: lines of shell
    that come before the job."""

    time: str = ""
    partition: str = ""
    account: str = ""
    output: str = "%x-%j.out"
    lines: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kubernetes:
    """What only Kubernetes needs to know. ``volumes``: (claim, path) of persistent volumes."""

    image: str
    namespace: str = "default"
    port: int = 29400
    volumes: tuple[tuple[str, str], ...] = ()
