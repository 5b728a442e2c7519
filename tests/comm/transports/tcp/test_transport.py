"""The transport between hosts passes the conformance suite, on every kind of layout."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from comm.transports.conformance import MISMATCHES, Conformance, Failures

from disttrain.errors import CollectiveMismatch
from support.hosts import host_outcomes, run_hosts

# Neighbours that share a host beside hosts of one rank, and ranks of a host that are no neighbours.
LAYOUTS = {1: "a", 2: "ab", 3: "aba", 4: "aabc"}


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=lambda n, fn: run_hosts(LAYOUTS[n], fn),
        outcomes=lambda n, fn: host_outcomes(LAYOUTS[n], fn),
        die=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )


class TestTcp(Conformance):
    worlds = (4,)


@pytest.mark.parametrize("world", [3])
class TestNoNeighbours:
    """What depends on which ranks share a host."""

    test_all_reduce = Conformance.test_all_reduce
    test_order = Conformance.test_order_of_reduction_is_a_tree_over_ranks
    test_differ_in_memory = Conformance.test_ranks_may_differ_in_memory
    test_reduce_scatter_uneven = Conformance.test_reduce_scatter_uneven
    test_all_gather_uneven = Conformance.test_all_gather_uneven
    test_all_to_all_uneven = Conformance.test_all_to_all_uneven
    test_every_verb_async = Conformance.test_every_verb_async
    test_split = Conformance.test_split
    test_send_recv_ring = Conformance.test_send_recv_ring


@pytest.mark.parametrize("world", [4])
class TestEncrypted:
    """Through records of a cipher instead of bytes."""

    test_all_reduce = Conformance.test_all_reduce
    test_order = Conformance.test_order_of_reduction_is_a_tree_over_ranks
    test_all_to_all_uneven = Conformance.test_all_to_all_uneven
    test_every_verb_async = Conformance.test_every_verb_async
    test_split = Conformance.test_split
    test_send_recv_ring = Conformance.test_send_recv_ring

    @pytest.fixture
    def ranks(self):
        return SimpleNamespace(run=lambda n, fn: run_hosts(LAYOUTS[n], fn, tls=True))


class TestTcpFailures(Failures):
    @pytest.mark.parametrize("world", [4])
    @pytest.mark.parametrize("wrong", MISMATCHES, ids=lambda f: f.__name__.strip("_"))
    def test_mismatch_raises_on_all_ranks(self, ranks, wrong, world):
        super().test_mismatch_raises_on_all_ranks(ranks, wrong, world)

    @pytest.mark.parametrize("hosts", ["aa", "aab"])
    def test_who_has_ended_of_a_deadlock_is_not_what_the_others_raise(self, hosts):
        """Rank 1 finds it long before the others would, and its process ends at once."""

        def body(group):
            detector = group.transport.hub.detector
            detector.looks, detector.calm = (4, 0.0) if group.rank == 1 else (1000, 0.0)
            other = group.new_group(range(group.size))
            (other if group.rank == 1 else group).all_reduce(np.ones(4))

        for outcome in host_outcomes(hosts, body, job=False):
            assert isinstance(outcome.error, CollectiveMismatch), outcome
            assert "do not belong together" in str(outcome.error)

    def test_a_deadlock_is_found_by_ranks_that_seldom_look(self):
        """On a machine that is too busy for many looks within the deadline."""

        def body(group):
            group.timeout, group.transport.hub.detector._every = 8.0, 0.5
            other = group.new_group(range(group.size))
            (other if group.rank == 1 else group).all_reduce(np.ones(4))

        for outcome in host_outcomes("aab", body):
            assert isinstance(outcome.error, CollectiveMismatch), outcome


@pytest.mark.parametrize("tls", [False, True])
def test_a_process_that_a_rank_forks_leaves_unread_what_others_have_sent(tls):
    def body(group):
        sums = []
        for _ in range(5):
            if group.rank >= 2:
                time.sleep(0.02)  # what the other host has sent lies in the kernel
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
            part = np.full(3, group.rank + 1.0)
            group.all_reduce(part)
            sums.append(float(part[0]))
        return sums

    assert run_hosts("aabb", body, tls=tls) == [[10.0] * 5] * 4
