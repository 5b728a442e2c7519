"""Steps of a spread optimizer behind the reduction of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_wrapper,
)
from disttrain.distributed.optim import ZeroRedundancyOptimizer
from disttrain.errors import ConfigError
from support.simulated import on_ranks

STEPS = 4


def model() -> nn.Module:
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 3))


def batch(rank: int, step: int) -> dt.Tensor:
    rng = np.random.default_rng([rank, step])
    return core.wrap(rng.standard_normal((4, 20)).astype(np.float32))


def arrays(tensors) -> list[np.ndarray]:
    return [t.detach().numpy().copy() for t in tensors]


def assert_close(a: list, b: list, within: float = 0.0) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=within * np.abs(y).max())


def trained(make, size: int) -> list:
    """Parameters after some steps, on every rank. ``make(ddp)`` registers; it gives what to call
    after each backward."""

    def body() -> list:
        dist.init_process_group()
        m = dist.DistributedDataParallel(model(), bucket_cap_mb=0.0005)
        after = make(m)
        for step in range(STEPS):
            m.zero_grad()
            (m(batch(dist.get_rank(), step)) ** 2).mean().backward()
            after()
        out = arrays(m.parameters())
        dist.destroy_process_group()
        return out

    return dist.simulate(body, size).results


def plain_adam(m):
    return dt.optim.Adam(m.parameters(), lr=0.05).step


def nothing() -> None:
    pass


@pytest.mark.simulated
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("with_step", [hook_with_zero_step, hook_with_zero_step_interleaved])
@pytest.mark.parametrize("inner", [allreduce_hook, fp16_compress_wrapper(allreduce_hook)])
def test_zero_steps_in_the_hook_equal_steps_after_backward(inner, with_step, size: int) -> None:
    def zero(m):
        o = ZeroRedundancyOptimizer(m.parameters(), dt.optim.Adam, overlap_with_ddp=True, lr=0.05)
        m.register_comm_hook(None, with_step(inner, m, o))
        return nothing

    def after(m):
        m.register_comm_hook(None, inner)
        return plain_adam(m)

    for ours, theirs in zip(trained(zero, size), trained(after, size), strict=True):
        assert_close(ours, theirs)


@pytest.mark.simulated
def test_schedules_work_where_steps_are_made_in_the_hook() -> None:
    def zero(m):
        o = ZeroRedundancyOptimizer(m.parameters(), dt.optim.SGD, overlap_with_ddp=True, lr=0.1)
        m.register_comm_hook(None, hook_with_zero_step(allreduce_hook, m, o))
        return dt.optim.lr_scheduler.ExponentialLR(o, 0.5).step

    def after(m):
        o = dt.optim.SGD(m.parameters(), lr=0.1)
        schedule = dt.optim.lr_scheduler.ExponentialLR(o, 0.5)
        return lambda: (o.step(), schedule.step())

    for ours, theirs in zip(trained(zero, 2), trained(after, 2), strict=True):
        assert_close(ours, theirs)


@pytest.mark.simulated
def test_memory_of_buckets_that_are_made_anew_is_given_back() -> None:
    made = {}

    def zero(m):
        o = ZeroRedundancyOptimizer(m.parameters(), dt.optim.SGD, overlap_with_ddp=True, lr=0.1)
        m.register_comm_hook(None, hook_with_zero_step_interleaved(allreduce_hook, m, o))
        made[dist.get_rank()] = o
        return nothing

    trained(zero, 2)
    for o in made.values():
        shared = [p for s in o._by_bucket.values() for params in s.owned for p in params]
        assert len(shared) == len(set(shared)) == 6 and len(o._by_bucket) > 1


@pytest.mark.simulated
def test_who_cannot_step_in_a_hook_is_refused() -> None:
    def body() -> list[str]:
        m = dist.DistributedDataParallel(nn.Linear(2, 2))
        said = []
        for params, overlap in ((m.parameters(), False), ([m.module.bias], True)):
            o = ZeroRedundancyOptimizer(params, dt.optim.SGD, overlap_with_ddp=overlap, lr=0.1)
            for make in (hook_with_zero_step, hook_with_zero_step_interleaved):
                with pytest.raises(ConfigError) as told:
                    make(allreduce_hook, m, o)
                said.append(str(told.value))
        return said

    without, _, lacking, _ = on_ranks(body)[0]
    assert "must be constructed with `overlap_with_ddp=True`" in without
    assert "1 trained parameters of the module" in lacking and "module.weight" in lacking


@pytest.mark.simulated
def test_frozen_parameters_need_not_be_the_optimizers() -> None:
    def body() -> list:
        inner = nn.Linear(2, 2)
        inner.weight.requires_grad_(False)
        nn.init.zeros_(inner.bias)  # a step of 1.0 from there is exact
        m = dist.DistributedDataParallel(inner)
        o = ZeroRedundancyOptimizer([inner.bias], dt.optim.SGD, overlap_with_ddp=True, lr=1.0)
        hook = hook_with_zero_step(allreduce_hook, m, o, shard_buckets=True)
        assert hook.__name__ == "allreduce_hook_with_zero_step"
        m.register_comm_hook(None, hook)
        m(dt.ones(1, 2)).sum().backward()
        return inner.bias.tolist()

    assert on_ranks(body) == [[-1.0, -1.0]] * 2
