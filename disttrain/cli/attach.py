"""``disttrain attach``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from typing import Any

from ..debugger import terminal
from ..debugger.client import Client
from ..debugger.wire import connect
from ..errors import ConfigError
from ..watch import running


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="its name or pid (disttrain jobs)")
    parser.add_argument("rank", type=int, help="the rank that has stopped")


def run(options: argparse.Namespace) -> int:
    return sit(options.job, options.rank)


def sit(name: str, rank: int, stop: bool = False) -> int:
    """Sit at ``rank`` of a job until it goes on; ``stop`` it, where it runs. The exit code."""
    job = find(name, rank)
    fd = terminal.usable(0)
    if fd < 0:
        raise ConfigError("standard input is no terminal; the debugger needs one")
    try:
        client = Client(connect(job.debugger), fd)
    except BaseException:
        os.close(fd)
        raise

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with contextlib.closing(client):
        client.ask(rank, stop)
        client.serve()
    if client.refused:
        raise ConfigError(client.refused)
    return 0


def find(name: str, rank: int) -> Any:
    """The job's part that has ``rank``: of the launcher of this machine that runs it. Raises
    ``ConfigError``."""
    if not name:
        raise ConfigError("the job's name is empty; `disttrain jobs` shows those that run here")
    parts = [j for j in running.jobs() if name in (j.job, str(j.pid))]
    having = [j for j in parts if j.first_rank <= rank < j.first_rank + j.num_ranks]
    job = having[0] if len(having) == 1 else running.find(name)
    if not job.first_rank <= rank < job.first_rank + job.num_ranks:
        last = job.first_rank + job.num_ranks - 1
        raise ConfigError(
            f"rank {rank} of job {job.job} does not run here, but {job.first_rank} to {last} do"
        )
    if not job.debugger:
        raise ConfigError(f"job {job.job} (pid {job.pid}) listens for no debugger")
    return job
