"""Strategies that keep a replica on every rank equal one process: optimizers whose state is spread,
steps inside communication hooks and inside backward, modules replicated in place; for networks of
many kinds, on 1 to 4 ranks, with gradients accumulated or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed._composable import replicate
from disttrain.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step_interleaved,
)
from disttrain.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from disttrain.distributed.optim import ZeroRedundancyOptimizer, _apply_optimizer_in_backward
from disttrain_launcher import launch
from support.cases.invariant_cases import INPUTS, MODELS
from support.rounding import Steps, Sums

ROWS, STEPS = 24, 3
SETTINGS = {"lr": 0.02, "weight_decay": 0.1}
ONE_STEP = Sums(terms=ROWS * 6, depth=2 * 6)  # places of a text; layers, there and back
ALL = Sums(ONE_STEP.terms, ONE_STEP.depth * STEPS)
Run = tuple[nn.Module, Callable[[], Any], Callable[[bool], Any]]


def make(name: str) -> nn.Module:
    dt.manual_seed(0)
    m = MODELS[name]().double()
    for part in m.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return nn.SyncBatchNorm.convert_sync_batchnorm(m)


def trained(m: nn.Module) -> list:
    return [p for p in m.parameters() if p.requires_grad]


def whether(m: nn.Module) -> Callable[[bool], Any]:
    """What encloses forward and backward: synchronising or not."""
    return lambda sync: contextlib.nullcontext() if sync else m.no_sync()


def zero(m: nn.Module) -> Run:
    ddp = dist.DistributedDataParallel(m, bucket_cap_mb=0.001)
    o = ZeroRedundancyOptimizer(ddp.parameters(), optim.AdamW, **SETTINGS)
    return ddp, o.step, whether(ddp)


def zero_in_hook(m: nn.Module) -> Run:
    ddp = dist.DistributedDataParallel(m, bucket_cap_mb=0.001)
    o = ZeroRedundancyOptimizer(ddp.parameters(), optim.AdamW, overlap_with_ddp=True, **SETTINGS)
    ddp.register_comm_hook(None, hook_with_zero_step_interleaved(allreduce_hook, ddp, o))
    return ddp, lambda: None, whether(ddp)


def in_backward(m: nn.Module) -> Run:
    _apply_optimizer_in_backward(optim.AdamW, trained(m), SETTINGS)
    ddp = dist.DistributedDataParallel(m, bucket_cap_mb=0.001)
    return ddp, lambda: None, whether(ddp)


def in_place(m: nn.Module) -> Run:
    replicate(m, bucket_cap_mb=0.001)
    o = ZeroRedundancyOptimizer(
        m.parameters(), optim.AdamW, parameters_as_bucket_view=True, **SETTINGS
    )

    def switch(sync: bool) -> Any:
        m.set_requires_gradient_sync(sync)
        return contextlib.nullcontext()

    return m, o.step, switch


STRATEGIES = {"zero": zero, "zero in hook": zero_in_hook, "in backward": in_backward,
              "in place": in_place}  # fmt: skip


def run(name: str, strategy: Callable, pieces: int, rank: int, size: int) -> list[np.ndarray]:
    m = make(name)
    whole, step_optimizer, enclosing = strategy(m)
    for step in range(STEPS):
        x = INPUTS[name](np.random.default_rng(step), ROWS)
        x = x.astype(np.float64) if x.dtype.kind == "f" else x
        whole.zero_grad()
        for k, part in enumerate(np.split(x, pieces)):
            with enclosing(k == pieces - 1):
                y = whole(dt.from_numpy(part[rank::size].copy()))
                ((y**2).mean() / pieces).backward()
        step_optimizer()
    return [p.detach().numpy().copy() for p in m.parameters()]


def on_rank(name: str, strategy: Callable, pieces: int) -> list[np.ndarray]:
    dist.init_process_group()
    out = run(name, strategy, pieces, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    return out


def assert_like_one(results: list, name: str, pieces: int) -> None:
    more: list = []

    def plain(m: nn.Module) -> Run:
        o = optim.AdamW(trained(m), **SETTINGS)
        steps = Steps(o)
        more.append(lambda: steps.more(ONE_STEP, m.parameters()))
        return m, o.step, lambda _: contextlib.nullcontext()

    alone = run(name, plain, pieces, 0, 1)
    for ours in results:
        for a, b, further in zip(ours, alone, more[0](), strict=True):
            ALL.equal(a, b, further)


@pytest.mark.simulated
@pytest.mark.parametrize("size, pieces", [(1, 1), (2, 4), (3, 1), (4, 2)])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_equals_one_process(name: str, strategy: Callable, size: int, pieces: int) -> None:
    results = dist.simulate(on_rank, size, args=(name, strategy, pieces)).results
    assert_like_one(results, name, pieces)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_on_real_processes(strategy: Callable) -> None:
    assert_like_one(launch(lambda: on_rank("cnn", strategy, 2), 2), "cnn", 2)
