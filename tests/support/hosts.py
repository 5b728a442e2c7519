"""Process groups over TCP for tests: forked ranks on pretended hosts, linked over loopback.

    run_hosts("aab", body)       ranks 0 and 1 on host a, rank 2 on host b: body(group) on each

Ranks of one letter share memory, others have sockets between them, as between real hosts. A rank
that fails or dies is announced to the others as a launcher would do it. ``support.namespaces`` has
hosts with networks of their own.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import Segment
from disttrain.comm.job.worker_env import WorkerEnv
from disttrain.comm.meeting.meeting import Meeting
from disttrain.comm.store import FileStore
from disttrain.comm.transports.tcp import engine
from disttrain.errors import CommError
from support.ranks import Outcome, fork_ranks, values


def host_outcomes(
    hosts: str,
    fn: Callable[[ProcessGroup], Any],
    timeout: float = 20.0,
    job: bool = True,
    tls: bool = False,
    **settings: Any,
) -> list[Outcome]:
    """Call ``fn(group)`` on a forked rank for each letter; every rank's outcome. ``job``: a
    launcher tells of failures. ``tls``: what hosts send each other is encrypted."""
    n = len(hosts)
    segment = Segment.create(n)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")

        def body(rank: int) -> Any:
            place = WorkerEnv(rank, n, generation=0, token_file=None, tls=tls)
            meeting = Meeting(rank, n, place, timeout, segment if job else None)
            meeting.open_store = lambda: FileStore(path, n, timeout=timeout)
            meeting._hosts = list(hosts)
            transport = engine.connect(meeting)
            try:
                return fn(ProcessGroup(transport, **settings))
            except CommError:
                raise
            except Exception as error:  # as a worker does, before others hear only of its end
                if job:
                    cause = f"{type(error).__name__}: {error}"
                    segment.publish_failure(rank, cause, traceback.format_exc())
                raise

        try:
            told = segment.publish_failure if job else None
            return fork_ranks(n, body, timeout, on_death=told)
        finally:
            segment.close()


def run_hosts(hosts: str, fn: Callable[[ProcessGroup], Any], **settings: Any) -> list:
    """The same; the results by rank, or the first failure."""
    return values(host_outcomes(hosts, fn, **settings))
