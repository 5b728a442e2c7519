"""Every rank hears of every other one, in as many rounds as the number of ranks asks for."""

from __future__ import annotations

import pytest

from disttrain.comm.transports.mpi.rounds import RADIX, rounds


@pytest.mark.parametrize("size", [*range(1, 20), 63, 64, 65, 100, 512, 513])
def test_all_ranks_hear_of_all(size):
    plans = [rounds(rank, size) for rank in range(size)]
    known = [{rank} for rank in range(size)]
    for number in range(len(plans[0])):
        before = [set(each) for each in known]
        for rank, plan in enumerate(plans):
            for src in plan[number].of:
                assert rank in plans[src][number].to
                known[rank] |= before[src]
        assert sum(len(p[number].to) for p in plans) == sum(len(p[number].of) for p in plans)
    assert all(each == set(range(size)) for each in known)


@pytest.mark.parametrize(
    "size, count", [(1, 0), (2, 1), (RADIX, 1), (RADIX + 1, 2), (64, 2), (65, 3)]
)
def test_the_number_of_rounds_is_a_logarithm(size, count):
    assert len(rounds(size - 1, size)) == count
