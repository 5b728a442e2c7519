"""A barrier that says who is missing, on simulated ranks: the clock is theirs."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.group import monitored_barrier
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports import sim
from disttrain.errors import WaitTimeout

pytestmark = pytest.mark.simulated


def outcomes(n, late, timeout=2.0, wait_all=False, ranks=None):
    """What each rank's barrier raised, and when it was over; ``late``: rank -> seconds. All meet in
    an ordinary collective afterwards."""

    def body():
        group = ProcessGroup(sim.connect())
        if ranks is not None:
            group = group.new_group(ranks)
        context.sleep(late.get(context.current().rank, 0.0))
        error = None
        if late.get(context.current().rank, 0.0) <= timeout:
            try:
                monitored_barrier.barrier(group, 0, timeout, wait_all)
            except WaitTimeout as raised:
                error = str(raised)
        over = context.now()
        x = np.ones(1)
        group.all_reduce(x)
        assert x[0] == group.size, "the group is usable"
        return error, over

    tasks = sim.run_cluster(body, sim.Cluster(n))[0].tasks
    assert [t.error for t in tasks] == [None] * n, [t.text for t in tasks]
    return [t.result for t in tasks]


def test_nobody_goes_on_before_everybody_has_come():
    found = outcomes(3, {2: 1.5})
    assert [error for error, _ in found] == [None] * 3
    assert all(over >= 1.5 for _, over in found)


def test_the_first_one_who_is_missing_is_named_to_rank_0_and_the_others_hear_of_it():
    zero, one, two, _ = outcomes(4, {2: 9.0, 3: 9.0}, timeout=0.5)
    assert zero[0].startswith("monitored_barrier: Rank 2 failed to pass monitoredBarrier in 500 ms")
    assert "Rank 0 timed out in monitoredBarrier after 500 ms" in zero[0]
    assert "Rank 1 successfully reached monitoredBarrier" in one[0] and "rank 0" in one[0]
    assert two[0] is None


def test_with_wait_all_everybody_who_is_missing_is_named():
    zero, *_ = outcomes(4, {1: 9.0, 3: 9.0}, timeout=0.5, wait_all=True)
    assert "Ranks 1, 3 failed to pass monitoredBarrier in 500 ms" in zero[0]


def test_where_rank_0_does_not_come_the_others_say_so():
    _, one, two = outcomes(3, {0: 9.0}, timeout=0.5)
    for rank, (error, over) in ((1, one), (2, two)):
        assert f"Rank {rank} successfully reached" in error and over == pytest.approx(0.5, abs=0.01)
        assert "while waiting for send/recv from rank 0" in error


def test_ranks_are_told_by_their_global_numbers():
    def error_of(rank):
        return found[rank][0]

    found = outcomes(3, {1: 9.0}, timeout=0.5, ranks=[2, 0, 1])
    assert "Rank 1 failed" in error_of(2) and "Rank 2 timed out" in error_of(2)
    assert "Rank 0 successfully reached" in error_of(0) and "from rank 2" in error_of(0)


def test_without_peers_nobody_is_waited_for():
    class Alone:
        class transport:  # noqa: N801
            hears = False

    assert monitored_barrier.barrier(Alone(), 0, 1e9, True) is None
