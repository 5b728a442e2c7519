"""Ranks on hosts with networks of their own: lost, late and missing packets, and hosts that go."""

from __future__ import annotations

import os
import socket
import time

import numpy as np
import pytest

import disttrain.distributed as dist
from disttrain import context
from disttrain.comm.group.default_group import default_group
from disttrain.comm.transports.tcp import pipe
from disttrain.errors import PeerFailed
from support.namespaces import Wire, outcomes_on, run_on, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

SIZES = (3, 5000, 60_000)


def some(rank, n):
    return np.random.default_rng(rank).standard_normal(n).astype(np.float32)


def total(size, n):
    parts = [some(r, n) for r in range(size)]
    while len(parts) > 1:
        joined = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[2 * len(joined) :]
    return parts[0]


def reduce_many(size, rounds):
    """The default group, after many sums that are right to the bit."""
    group = default_group()
    assert group.transport.kind == "tcp"
    for _ in range(rounds):
        for n in SIZES:
            x = some(group.rank, n)
            group.all_reduce(x)
            assert x.tobytes() == total(size, n).tobytes()
    return group


def test_ranks_of_two_and_three_hosts_meet():
    def body(rank):
        dist.init_process_group()
        group = reduce_many(4, 1)
        peer = (rank + 2) % 4
        x = np.zeros(20_000)
        work = group.irecv(x, peer, 7)
        group.send(np.full(20_000, float(rank)), peer, 7)
        work.wait()
        assert (x == peer).all()
        pair = group.split(rank // 2)
        kinds = pair.transport.kind
        dist.destroy_process_group()
        return kinds

    with Wire(3) as wire:
        assert run_on(wire, "aabb", body) == ["shm"] * 4
        assert run_on(wire, "abca", body) == ["tcp"] * 4


@pytest.mark.timeout(120)
@pytest.mark.parametrize("tls", ["0", "1"])
@pytest.mark.parametrize("seed", range(2))
def test_ranks_meet_where_a_fifth_of_all_packets_is_lost(seed, tls):
    """In each direction: what a handshake takes depends on the way there, not on us."""

    def body(rank):
        os.environ["DISTTRAIN_TLS"] = tls
        dist.init_process_group(timeout=90)
        group = default_group()
        x = np.ones(3, np.float32)
        group.all_reduce(x)
        wire.lose(0)  # to end in time
        dist.barrier()
        dist.destroy_process_group()
        return x.tolist()

    with Wire(2, seed) as wire:
        wire.lose(20)
        assert run_on(wire, "abb", body, timeout=100) == [[3.0] * 3] * 3


def test_what_was_said_before_the_end_counts_however_late_it_comes():
    """The end of the second link of a pair overtakes what was said over the first one."""

    def body(rank):
        dist.init_process_group()
        group = default_group()
        x = np.ones(3, np.float32)
        group.all_reduce(x)
        if rank == 1:
            for pipe in group.transport.hub.net.pipes.values():
                pipe.pulse.sock.shutdown(socket.SHUT_WR)
            time.sleep(1.0)
        group.all_reduce(x)
        dist.destroy_process_group()
        return x.tolist()

    with Wire(2) as wire:
        assert run_on(wire, "abb", body) == [[9.0] * 3] * 3


@pytest.mark.parametrize("what", ["lost", "late"])
def test_a_bad_network_changes_no_bit_and_is_no_failure(what):
    def body(rank):
        dist.init_process_group()
        if rank == 0:
            wire.lose(5 if what == "lost" else 0)
            wire.delay(0.0 if what == "lost" else 0.02, 0.005)
        reduce_many(3, 4)
        dist.destroy_process_group()

    with Wire(2) as wire:
        run_on(wire, "abb", body)


@pytest.mark.parametrize("ways", [[(0, 1), (1, 0)], [(0, 1)]], ids=["cut", "one way"])
def test_a_host_that_cannot_be_reached_is_noticed_on_both_sides(ways, monkeypatch):
    monkeypatch.setattr(pipe, "SILENCE", 1.5)

    def body(rank):
        dist.init_process_group()
        start = time.monotonic()
        with pytest.raises(PeerFailed) as error:
            group = reduce_many(4, 1)  # rank 0 may cut the wire before others have all of it
            if rank == 0:
                for way in ways:
                    wire.block(*way)
            while True:
                group.all_reduce(np.ones(3))
                context.sleep(0.01)
        return error.value.rank, error.value.cause, time.monotonic() - start

    with Wire(2) as wire:
        for rank, outcome in enumerate(outcomes_on(wire, "aabb", body)):
            assert outcome.error is None, outcome
            lost, cause, seconds = outcome.value
            assert lost // 2 != rank // 2 and "link has ended" in cause, outcome
            assert seconds < 10
