"""Ranks without input: flags of an iteration, whose buffers count, and whose model stays."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.ddp.joining import ACTIVE, BUFFERS, SYNC, announce, source
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_every_rank_hears_all_flags():
    def body():
        mine = [ACTIVE | SYNC, 0, ACTIVE | BUFFERS][dist.get_rank()]
        return announce(dist.group.WORLD, mine)

    assert on_ranks(body, 3) == [[3, 0, 5]] * 3


def test_the_last_rank_with_input_gives_its_buffers():
    assert source([ACTIVE, ACTIVE | SYNC, SYNC]) == 1 and source([ACTIVE]) == 0
    with pytest.raises(ValueError):
        source([0, BUFFERS])  # nobody has input: then there is no iteration


@pytest.mark.parametrize("divide", [True, False])
def test_gradients_of_those_with_input_are_divided_by_all_or_by_those(divide):
    def body():
        m = dist.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        seen = []
        with m.join(divide_by_initial_world_size=divide):
            for _ in range(dist.get_rank() + 1):
                m.zero_grad()
                m(dt.ones(1, 1)).sum().backward()
                seen.append(m.module.weight.grad.item())
        return seen

    first, second, third = on_ranks(body, 3)
    assert first == [1.0]
    assert third == pytest.approx([1.0, 2 / 3, 1 / 3] if divide else [1.0, 1.0, 1.0])
    assert second == third[:2]


def test_in_the_end_all_have_the_model_of_one_that_trained_to_the_end():
    def body():
        m = dist.DistributedDataParallel(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)))
        opt = dt.optim.SGD(m.parameters(), lr=0.1)
        with m.join():
            for k in range(2 * dist.get_rank() + 1):
                opt.zero_grad()
                (m(dt.tensor([[1.0], [k + 2.0]])) ** 3).sum().backward()
                opt.step()
        return [t.tolist() for t in m.state_dict().values()]

    first, second = on_ranks(body)
    assert first == second and first[-1] == 3  # batches
