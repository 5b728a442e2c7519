"""Random legal programs between hosts: in one process after another, each time on other hosts."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from disttrain import distributed as dist
from disttrain.comm.meeting.meeting import Meeting
from support.cases.programs import Plan, draw, follow
from support.ranks import free_port, run_ranks

LAYOUTS = ("abbb", "abba", "aaba", "abab", "abcd", "aabb", "baaa")
RANKS = 4


def plans(first, count):
    """The next plans of four ranks, in rounds that each meet anew."""
    seed = first
    rounds = []
    while len(rounds) < count:
        plan = draw(seed)
        if plan.size == RANKS:
            rounds += [Plan(seed, RANKS, [steps]) for steps in plan.rounds]
        seed += 1
    return rounds[:count]


@pytest.mark.parametrize("first", [500, 600])
def test_random_programs_between_hosts(first, monkeypatch):
    port = free_port()
    hosts = [""]
    monkeypatch.setattr(Meeting, "_ask_hosts", lambda self: list(hosts[0]))
    connect = dist.init_process_group
    monkeypatch.setattr(dist, "init_process_group", lambda: connect("tcp"))

    def body(rank):
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS)
        )
        held = []
        for plan, hosts[0] in zip(plans(first, len(LAYOUTS)), LAYOUTS, strict=True):
            follow(plan)
            gc.collect()
            held.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        return held

    for held in run_ranks(RANKS, body):
        assert held[-1] == held[0]  # descriptors and threads
