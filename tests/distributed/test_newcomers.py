"""A process takes the place of a rank that was lost, while the others go on: on simulated ranks,
which lose and start themselves anew at any point of it."""

from __future__ import annotations

import os
import random

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.meeting import survivors
from disttrain.errors import CommError, GroupRevoked, PeerFailed
from support.newcomers import start_anew

pytestmark = pytest.mark.simulated

SCHEDULES = int(os.environ.get("SCHEDULES", "1"))
LARGE = 70_000


def waiting() -> bool:
    """Do all agree that somebody wants to take part?"""
    found = survivors.newcomers(dist.group.WORLD.transport.hub.view)
    flag = dt.tensor([len(found)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item() > 0


def train(number: int, deaths: list[int], steps: int) -> tuple:
    """Steps of all who are there; ``deaths``: before which steps this rank ends, for the first time
    that it is there."""
    deaths, step, weights, again = list(deaths), 0, dt.zeros(4), True
    dist.init_process_group()
    seen = []
    while step < steps:
        try:
            if again:
                told: list = [None] * dist.get_world_size()
                dist.all_gather_object(told, step)
                dist.broadcast(weights, told.index(max(told)))
                step, again = max(told), False
                continue
            if deaths and step >= deaths[0]:
                deaths.pop(0)
                step, weights, again = 0, dt.zeros(4), True
                start_anew(number)
                dist.init_process_group()
                continue
            big = dt.full((LARGE,), 1.0)
            dist.all_reduce(big)
            total = dt.ones(4)
            dist.all_reduce(total)
            assert total[0].item() == big[-1].item() == dist.get_world_size()
            weights += step + 1
            step += 1
            seen.append(dist.get_world_size())
            if waiting():
                dist.shrink()
                again = True
        except (PeerFailed, GroupRevoked):
            dist.shrink()
            again = True
    return weights.tolist(), seen


@pytest.mark.parametrize("seed", range(20 * SCHEDULES))
def test_ranks_are_replaced_again_and_again(seed):
    draw = random.Random(seed)
    ranks, steps = draw.choice([2, 3, 4]), 8
    deaths = {r: sorted(draw.sample(range(1, 5), draw.randrange(0, 3))) for r in range(1, ranks)}

    def body():
        me = context.current().rank
        try:
            return train(me, deaths.get(me, []), steps)
        except CommError as error:  # the others were done before
            assert deaths[me] and "none of them is left; they have ended" in str(error)

    ended = dist.simulate(body, ranks, seed=seed).results
    assert ended[0] is not None
    for weights, sizes in filter(None, ended):
        assert weights == [sum(range(1, steps + 1))] * 4
        assert sizes[-1] == ended[0][1][-1]


def test_also_the_first_rank_is_replaced_and_numbers_are_as_before():
    def body():
        me = context.current().rank
        dist.init_process_group()
        if me == 0:
            start_anew(0)
            dist.init_process_group()
        else:
            with pytest.raises(PeerFailed):
                dist.barrier()
            assert dist.shrink() == [1, 2]
            while not waiting():
                context.sleep(0.01)
            assert dist.shrink() == [-1, 0, 1]
        used = []
        for _ in range(3):
            dist.barrier()
            pair = dist.new_group([0, 1])
            x = dt.ones(LARGE)
            if dist.get_rank() < 2:
                dist.all_reduce(x, group=pair)
            sent, got = dist.isend(x, (me + 1) % 3), dt.zeros(LARGE)
            dist.recv(got, (me - 1) % 3)
            sent.wait()
            assert got[-1].item() == x[-1].item() or dist.get_rank() in (0, 2)
            used.append(dist.group.WORLD.transport.hub.arena.used_bytes())
            dist.destroy_process_group(pair)
        dist.destroy_process_group()
        dist.init_process_group()  # once more, as it is now
        x = dt.ones(3)
        dist.all_reduce(x)
        return dist.get_rank() == me, x.tolist()

    assert dist.simulate(body, 3, seed=1).results == [(True, [3.0] * 3)] * 3


def test_one_that_nobody_is_left_to_let_in_says_so():
    def body():
        dist.init_process_group()
        if context.current().rank == 1:
            start_anew(1)
            with pytest.raises(CommError, match=r"rank 1 was started anew .* they have ended"):
                dist.init_process_group()
        return True

    assert dist.simulate(body, 2, seed=1).results == [True, True]
