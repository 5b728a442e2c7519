"""A local optimizer, and models averaged now and then."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from disttrain.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from disttrain.distributed.optim import PostLocalSGDOptimizer
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Linear(3, 2).double()


def backward(m: nn.Module, step: int, rank: int) -> None:
    x = dt.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 3)))
    (m(x) ** 2).mean().backward()


def test_post_local_sgd_with_its_hook() -> None:
    """Two warm-up steps as DDP, then local steps, averaged every second one."""

    def body() -> list:
        rank = dist.get_rank()
        m = dist.DistributedDataParallel(model())
        m.register_comm_hook(PostLocalSGDState(None, None, 2, False), post_localSGD_hook)
        o = PostLocalSGDOptimizer(
            optim.SGD(m.parameters(), lr=0.1, momentum=0.5), PeriodicModelAverager(2, 2)
        )
        out = []
        for step in range(6):
            o.zero_grad()
            backward(m, step, rank)
            o.step()
            out.append(m.module.weight.detach().numpy().copy())
        return out

    def by_hand() -> list:
        models = [model() for _ in range(2)]
        optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in models]
        out = []
        for step in range(6):
            for rank, (m, o) in enumerate(zip(models, optimizers, strict=True)):
                o.zero_grad()
                backward(m, step, rank)
            pairs = list(zip(*(m.parameters() for m in models), strict=True))
            if step < 2:
                for a, b in pairs:
                    a.grad = b.grad = (a.grad + b.grad) / 2
            for o in optimizers:
                o.step()
            if step >= 2 and step % 2 == 0:
                for a, b in pairs:
                    mean = (a.detach() + b.detach()) / 2
                    a.data.copy_(mean)
                    b.data.copy_(mean)
            out.append([m.weight.detach().numpy().copy() for m in models])
        return out

    wanted = by_hand()
    for rank, steps in enumerate(on_ranks(body)):
        for step, got in enumerate(steps):
            np.testing.assert_allclose(got, wanted[step][rank], rtol=0, atol=1e-12)


def test_state_keeps_the_averagers_step() -> None:
    def body() -> tuple:
        def make() -> PostLocalSGDOptimizer:
            m = model()
            o = optim.Adam(m.parameters(), lr=0.1)
            made = PostLocalSGDOptimizer(o, PeriodicModelAverager(3, 1))
            made.model = m
            return made

        first, second = make(), make()
        for step in range(4):
            backward(first.model, step, dist.get_rank())
            first.step()
        state = first.state_dict()
        second.load_state_dict(state)
        out = [second.averager.step, len(second.state), second.param_groups[0]["lr"], repr(second)]
        del state["step"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            second.load_state_dict(state)
        return out, second.averager.step, [str(w.message) for w in caught]

    (out, step, said) = on_ranks(body, 1)[0]
    assert out[:3] == [4, 2, 0.1] and out[3].startswith("Adam (")
    assert step == 0 and "does not contain a step counter" in said[0]


def test_schedulers_groups_and_closures_reach_the_local_optimizer() -> None:
    def body() -> tuple:
        m, extra = model(), nn.Parameter(dt.ones(1).double())
        o = PostLocalSGDOptimizer(optim.SGD(m.parameters(), lr=1.0), PeriodicModelAverager(9, 9))
        o.add_param_group({"params": [extra], "lr": 0.5})
        schedule = optim.lr_scheduler.ExponentialLR(o, 0.5)
        loss = o.step(lambda: 7.0)
        schedule.step()
        return loss, [g["lr"] for g in o.optim.param_groups], isinstance(o, optim.Optimizer)

    assert on_ranks(body, 1) == [(7.0, [0.5, 0.25], True)]
