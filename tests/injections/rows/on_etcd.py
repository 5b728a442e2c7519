"""Rows about jobs whose nodes meet at an etcd of three members, which lie on the first three nodes.

Members elect as docs/etcd.md advises: with etcd's defaults, which are for members far from each
other, a loss is known up to 3 s later where it takes etcd's leader along.

Ranks note every step (``support.stepping``); what they noted is verified as a whole: no step was
committed twice, no committed one was lost, no two generations have stepped at the same time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from injections.rows.hygiene import MARK, Census
from injections.rows.row import Row, Seen, Trial
from support.clusters import etcd_job
from support.clusters.etcd_job import EtcdJob, Hosts, etcd_hosts
from support.stepping import Note, notes_of, verify, wait_for

STEPS = 10  # that a generation makes before it counts for one that steps
ELECT = ("--heartbeat-interval", "50", "--election-timeout", "500")
CUT, CUT_QUICK = 20.0, 7.0  # seconds


@contextmanager
def nodes(trial: Trial, count: int, smallest: int) -> Iterator[tuple[EtcdJob, Hosts, Seen]]:
    """A job on ``count`` hosts, all of which have stepped together. At the end it is let go, and
    all that it noted and left is looked at."""
    seen = Seen()
    with etcd_hosts(count, 3, *ELECT) as hosts:
        census = Census(trial.folder.name, trial.folder)
        conf = "last_call_timeout=3,join_timeout=60,keep_alive_max_attempt=4"
        env = {MARK: trial.folder.name, "OMP_NUM_THREADS": "1"}
        flags = ("--nnodes", f"{smallest}:{count}", "--rdzv-conf", conf)
        with EtcdJob(trial.folder, hosts, *flags, name="job", env=env) as job:
            for host in range(count):
                job.start(host)
            wait_for(job.folders, steps_of(count), 60.0)
            census.note_ports()
            yield job, hosts, seen
            job.finish()
            for host in job.running():
                ended = job.wait(host, 20.0)
                seen.expect(
                    ended.code == 0, f"node {host} ended with {ended.code}: {ended.err[-300:]}"
                )
            try:
                verify(notes_of(job.folders))
            except AssertionError as error:
                seen.wrong.append(str(error))
        ours = {path.name for path in trial.folder.iterdir() if path.name.startswith("job")}
        seen.wrong += census.complaints(ours)


def steps_of(world: int, after: int = 0) -> Callable[[list[Note]], bool]:
    """Has a generation of so many ranks, later than ``after``, made some steps?"""
    return lambda notes: (
        len({n.step for n in notes if n.world == world and n.generation > after}) >= STEPS
    )


def first_node_lost(trial: Trial) -> Seen:
    """R11: the node of rank 0, and the member of etcd that lies there."""
    with nodes(trial, 3, 2) as (job, hosts, seen):
        before = notes_of(job.folders)[-1].generation
        first = job.node_of_rank_0()
        hosts.etcd.kill(first)
        struck = job.kill(first)
        notes = wait_for(job.folders, steps_of(2, before))
        seen.values["steps again"] = min(n.at for n in notes if n.generation > before) - struck
    return seen


def cut(trial: Trial, both_ways: bool = True) -> Seen:
    """R12 and R13: nodes 0 and 1, with two members of etcd, and 2 and 3, with one."""
    with nodes(trial, 4, 2) as (job, hosts, seen):
        before = notes_of(job.folders)[-1].generation
        struck = time.monotonic()
        hosts.cut([0, 1], [2, 3], one_way=not both_ways)
        notes = wait_for(job.folders, steps_of(2, before))
        seen.values["goes on"] = min(n.at for n in notes if n.generation > before) - struck
        time.sleep(max(0.0, struck + (CUT_QUICK if trial.quick else CUT) - time.monotonic()))
        beyond = [n.at - struck for n in notes_of(job.folders[2:]) if n.at > struck]
        seen.values["last step beyond"] = max(beyond, default=0.0)
        generation = notes_of(job.folders)[-1].generation
        hosts.heal()
        healed = time.monotonic()
        notes = wait_for(job.folders, steps_of(4, generation))
        together = min(n.at for n in notes if n.generation > generation and n.world == 4)
        seen.values["together again"] = together - healed
    return seen


def _row(name: str, inject: str, criterion: str, run: Callable[[Trial], Seen], *limits: str) -> Row:
    return Row(
        name, inject, criterion, "torchrun ends, or does not notice in 70 s", run,
        dict.fromkeys(limits, 5.0), why_not=etcd_job.why_not,
    )  # fmt: skip


ROWS: Sequence[Row] = [
    _row(
        "R11e",
        "3 nodes and an etcd of 3 members on them: SIGKILL of all of the first and its member",
        "the others step again within 5 s, no committed step lost or made twice",
        first_node_lost, "steps again",
    ),
    _row(
        "R12e",
        "4 nodes and an etcd of 3 members on the first of them: the network between two and two is "
        "cut for 20 s, and healed",
        "the side with two members goes on within 5 s, the other one makes no step after 5 s, and "
        "is with it again when it can be; never two generations at once, no committed step lost or "
        "made twice",
        cut, "goes on", "last step beyond",
    ),
    _row(
        "R13e",
        "the same one way: two nodes can send, and hear nothing",
        "the same",
        functools.partial(cut, both_ways=False), "goes on", "last step beyond",
    ),
]  # fmt: skip
