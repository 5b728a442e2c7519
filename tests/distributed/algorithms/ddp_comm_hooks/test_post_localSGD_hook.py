"""Gradients averaged over all ranks first, and over few or nobody later."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
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


def alone(rank: int, step: int = STEPS - 1) -> list[np.ndarray]:
    m = model()
    (m(batch(rank, step)) ** 2).sum().backward()
    return arrays(p.grad for p in m.parameters())


@pytest.mark.simulated
@pytest.mark.parametrize("reduce_locally", [True, False])
def test_post_local_sgd_averages_over_few_later(reduce_locally: bool) -> None:
    def body() -> list:
        dist.init_process_group()
        rank = dist.get_rank()
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        m = dist.DistributedDataParallel(model())
        state = PostLocalSGDState(None, pairs[rank // 2], 2, reduce_locally)
        m.register_comm_hook(state, post_localSGD_hook)
        out = []
        for step in range(4):
            m.zero_grad()
            (m(batch(rank, step)) ** 2).sum().backward()
            out.append(arrays(p.grad for p in m.parameters()))
        dist.destroy_process_group()
        return out

    for rank, steps in enumerate(dist.simulate(body, 4).results):
        for step, ours in enumerate(steps):
            with_whom = range(4) if step < 2 else [rank]
            if step >= 2 and reduce_locally:
                with_whom = [rank // 2 * 2, rank // 2 * 2 + 1]
            parts = [alone(r, step) for r in with_whom]
            assert_close(ours, [np.mean(ps, axis=0) for ps in zip(*parts, strict=True)], 1e-5)


@pytest.mark.simulated
def test_iterations_are_counted_by_their_last_buckets(caplog) -> None:
    state = PostLocalSGDState(None, None, 2)
    first, last = (SimpleNamespace(is_last=lambda end=end: end) for end in (False, True))
    with caplog.at_level(logging.INFO):
        for bucket, count in ((first, 0), (last, 1), (first, 1), (last, 2), (last, 3)):
            state.maybe_increase_iter(bucket)
            assert state.iter == count
    assert caplog.messages == ["Start to apply local SGD after 2 iterations."]


@pytest.mark.simulated
def test_without_a_subgroup_it_is_that_of_the_host() -> None:
    def body() -> tuple:
        m = dist.DistributedDataParallel(nn.Linear(1, 1, bias=False))
        state = PostLocalSGDState(None, None, 0)
        m.register_comm_hook(state, post_localSGD_hook)
        m(dt.full((1, 1), float(dist.get_rank()))).sum().backward()
        return m.module.weight.grad.item(), state.subgroup.size, state.iter

    found = on_ranks(body)
    size = found[0][1]
    assert [f[0] for f in found] == ([0.5, 0.5] if size == 2 else [0.0, 1.0])
    assert all(f[2] == 0 for f in found)  # nothing to warm up: nothing is counted


@pytest.mark.simulated
def test_a_state_can_be_kept_and_taken_along() -> None:
    state = PostLocalSGDState(None, None, 5, False)
    state.iter = 4
    assert not hasattr(state, "__dict__")
    assert {n: getattr(state, n) for n in state.__slots__} == {
        "iter": 4, "post_local_gradient_allreduce": False, "process_group": None,
        "start_localSGD_iter": 5, "subgroup": None,
    }  # fmt: skip
