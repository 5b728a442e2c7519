"""Clipping by the norm of all gradients, of which some are sharded: what parts are joined from."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import (
    ShardingStrategy,
)
from disttrain.distributed.fsdp.flat import norm
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy
from support.rounding import Sums
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


SUMS = Sums(terms=12, depth=2 * 3)


BOTH = pytest.mark.parametrize("orig", [False, True], ids=["flat", "orig"])


def plain(seed: int = 3) -> nn.Module:
    manual_seed(seed)
    return nn.Sequential(nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7)), nn.Linear(7, 3)).double()


def wrapped(orig: bool, seed: int = 3, **options: Any) -> FSDP:
    options = {"auto_wrap_policy": ModuleWrapPolicy({nn.Sequential}), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FSDP(plain(seed), use_orig_params=orig, **options)


def backward(m: nn.Module) -> None:
    """Gradients of a loss over all ranks' inputs."""
    x = np.random.default_rng(7).standard_normal((12, 5))
    if isinstance(m, FSDP):
        x = x[dist.get_rank() :: dist.get_world_size()]
    (m(core.wrap(x)) ** 2).mean().backward()


@BOTH
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD", "mixed"])
@pytest.mark.parametrize("plain_function", [False, True], ids=["method", "function"])
def test_clipping_by_the_norm_of_everything(
    strategy: str, norm_type: float, orig: bool, plain_function: bool
) -> None:
    ref = plain()
    backward(ref)
    total = nn.utils.clip_grad_norm_(ref.parameters(), 0.01, norm_type)
    want = {n: p.grad.numpy() for n, p in ref.named_parameters()}

    def body() -> None:
        if strategy == "mixed":
            inner = plain()
            inner[1] = FSDP(inner[1], sharding_strategy=ShardingStrategy.NO_SHARD,
                            use_orig_params=True)  # fmt: skip
            m = FSDP(inner, use_orig_params=True, ignored_states=[inner[0][1].weight])
        else:
            m = wrapped(orig, sharding_strategy=ShardingStrategy[strategy])
        backward(m)
        if strategy == "mixed":
            dist.all_reduce(m[0][1].weight.grad)
            m[0][1].weight.grad.div_(2)
        if plain_function:
            got = nn.utils.clip_grad_norm_(m.parameters(), 0.01, norm_type)
        else:
            got = m.clip_grad_norm_(0.01, norm_type)
        np.testing.assert_allclose(float(got), float(total), rtol=1e-10)
        if orig:
            with FSDP.summon_full_params(m, with_grads=True):
                for n, p in m.named_parameters():
                    SUMS.equal(p.grad.numpy(), want[n])

    on_ranks(body, 2)


def test_clipping_without_gradients_tells_so() -> None:
    def body() -> None:
        with pytest.warns(UserWarning, match="with no gradients -- returning the total norm"):
            assert float(wrapped(False).clip_grad_norm_(1.0)) == 0.0

    on_ranks(body, 2)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf, -math.inf])
def test_parts_join_to_the_norm_of_the_whole(p: float) -> None:
    whole = np.random.default_rng(0).standard_normal(12)
    parts = [
        [core.wrap(whole[:5]), core.wrap(whole[5:5])],
        [core.wrap(whole[5:].reshape(7, 1))],
        [],
    ]
    found = norm.finish([norm.power_sum(grads, p) for grads in parts], p)
    assert found == pytest.approx(np.linalg.norm(whole, p))


def test_no_gradients_change_no_norm() -> None:
    assert [norm.power_sum([], p) for p in (2.0, math.inf, -math.inf)] == [0.0, 0.0, math.inf]
    assert norm.finish([3.0, math.inf], -math.inf) == 3.0
    huge = [core.wrap(np.full(2, 1e200))]
    assert norm.power_sum(huge, 3.0) == math.inf  # and no warning


@BOTH
def test_the_smallest_gradient_of_all_ranks_is_found(orig: bool) -> None:
    def body() -> None:
        m = wrapped(orig)
        backward(m)
        least = min(float(p.grad.abs().min()) for p in m.parameters() if p.grad is not None
                    and p.grad.numel())  # fmt: skip
        told = dt.tensor(least, dtype=dt.float64)
        dist.all_reduce(told, dist.ReduceOp.MIN)
        assert float(m.clip_grad_norm_(1e9, -math.inf)) == pytest.approx(told.item())

    on_ranks(body, 2)


@pytest.mark.parametrize("p", [2.0, math.inf, -math.inf])
def test_ranks_join_by_sum_largest_or_smallest(p: float) -> None:
    def body() -> float:
        return norm.over(dist.group.WORLD, float(dist.get_rank() + 1), p)

    want = {2.0: 6.0, math.inf: 3.0, -math.inf: 1.0}[p]
    assert dist_results(body) == [want] * 3


def dist_results(body: object) -> list:
    def rank() -> object:
        dist.init_process_group()
        return body()

    return dist.simulate(rank, 3).results
