"""Optimizers of single parameters that step inside backward, once the mean is there."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.ddp import in_backward
from disttrain.distributed.optim import _apply_optimizer_in_backward
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_optimizers_do_not_step_by_gradients_of_one_rank_any_more():
    plain, own = nn.Parameter(dt.ones(1)), nn.Parameter(dt.ones(1))
    _apply_optimizer_in_backward(optim.SGD, [own], {"lr": 1.0})
    (own * 2).sum().backward()
    assert own.tolist() == [-1.0]
    assert in_backward.take_over([plain]) is False and in_backward.take_over([plain, own]) is True
    (own * 2).sum().backward()
    assert own.tolist() == [-1.0] and own.grad.tolist() == [2.0]
    assert getattr(own, in_backward.OPTIMIZERS) and not getattr(own, in_backward.HANDLES)
    in_backward.take_over([own])  # once more: nothing is left to take


def test_the_mean_is_stepped_by_and_dropped():
    def body():
        model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        for p in model.parameters():
            p.data.fill_(1.0)
        _apply_optimizer_in_backward(optim.SGD, [model[0].weight], {"lr": 0.5})
        m = dist.DistributedDataParallel(model)
        m(dt.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
        first, second = model[0].weight, model[1].weight
        return first.item(), first.grad is None, second.grad is None

    # the mean of 1 and 2; what has no optimizer of its own keeps its gradient
    found = on_ranks(body)
    assert [f[:2] for f in found] == [(1 - 0.5 * 1.5, True)] * 2
    assert found[0][2] is False
