"""Weighted gradients under FSDP: the mean over all tokens, whoever has how many of them."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from disttrain.distributed.fsdp.comm_hooks import DefaultState, allreduce_hook, reduce_scatter_hook
from disttrain.errors import AutogradError, ConfigError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many tokens; layers, there and back, and parts of the batch.
SUMS = Sums(terms=64, depth=2 * 3 * 3)
F = nn.functional
WIDTH, CLASSES, PARTS = 6, 5, 3


def net() -> nn.Module:
    manual_seed(1)
    return nn.Sequential(
        nn.Embedding(11, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 7), nn.Tanh(),
        nn.Linear(7, CLASSES),
    ).double()  # fmt: skip


def ragged(seed: int, ranks: int) -> list[list[tuple]]:
    """Per rank and part of the batch (codes, targets): of various lengths, also of none."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (ranks, PARTS))
    counts[rng.integers(ranks)] *= rng.integers(2)  # a rank with nothing at all, perhaps
    counts[-1, -1] += 1
    return [
        [(rng.integers(0, 11, n), rng.integers(0, CLASSES, n)) for n in row] for row in counts
    ]


def alone(parts: list[list[tuple]]) -> list[np.ndarray]:
    """One process with all tokens."""
    model = net()
    codes, targets = (np.concatenate([p[i] for row in parts for p in row]) for i in (0, 1))
    F.cross_entropy(model(dt.from_numpy(codes)), dt.from_numpy(targets)).backward()
    return [p.grad.numpy() for p in model.parameters()]


def wrapped(kind: str):
    """The net under one of the strategies, and what makes its gradients whole."""
    model = net()
    size = dist.get_world_size()
    if kind.startswith("flat"):
        how = {"use_orig_params": "orig" in kind}
        if "none" in kind:
            how["sharding_strategy"] = ShardingStrategy.NO_SHARD
        if "hybrid" in kind:
            how["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
            how["device_mesh"] = dist.init_device_mesh("cpu", (2, size // 2))
        model[2] = FullyShardedDataParallel(model[2], **how)
        out = FullyShardedDataParallel(model, **how)
        if "hook" in kind:
            group = dist.group.WORLD
            hook = allreduce_hook if "none" in kind else reduce_scatter_hook
            out.register_comm_hook(DefaultState(group), hook)
        return out
    mesh = dist.init_device_mesh("cpu", (2, size // 2)) if "hybrid" in kind else None
    how = {"mesh": mesh}
    if "offload" in kind:
        how["offload_policy"] = CPUOffloadPolicy()
    if "apart" in kind:
        how["reshard_after_forward"] = False
    for m in (model[2], model[4]):
        fully_shard(m, **how)
    fully_shard(model, **how)
    if "forced" in kind:
        for m in (model, model[2], model[4]):
            m.set_force_sum_reduction_for_comms(True)
    return model


def gradients(model) -> list[np.ndarray]:
    """All of them, on every rank."""
    if isinstance(model, FullyShardedDataParallel):
        found = flat_gradients(model)
    else:
        found = [p.grad.full_tensor() for p in model.parameters()]
    return [np.array(g.numpy() if hasattr(g, "numpy") else g) for g in found]


def flat_gradients(model) -> list:
    """By a step of the optimizer: 1 times the gradient."""
    optimizer = dt.optim.SGD(model.parameters(), lr=1.0)
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        before = {n: p.detach().clone() for n, p in named(model)}
    optimizer.step()
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        return [before[n] - p.detach() for n, p in named(model)]


def named(model) -> list:
    """Its parameters as the module inside has them."""
    found = []
    for name, m in model.named_modules():
        for key in ("weight", "bias"):
            p = m.__dict__.get(key, m._parameters.get(key))
            if isinstance(p, dt.Tensor):
                found.append((f"{name}.{key}", p))
    return found


def accumulate(model, parts: list[tuple], loss: str, waits: bool) -> None:
    """The backwards of a step, of which the last one reduces."""
    for k, (codes, targets) in enumerate(parts):
        last, n = k == len(parts) - 1, len(codes)
        if hasattr(model, "no_sync"):
            quiet = nullcontext() if last else model.no_sync()
        else:
            model.set_requires_gradient_sync(last)
            model.set_is_last_backward(last or not waits)
            quiet = nullcontext()
        with quiet, model.weight(n, loss):
            out = F.cross_entropy(
                model(dt.from_numpy(codes)), dt.from_numpy(targets), reduction=loss
            )
            out.backward()


def weighted(kind: str, seed: int, loss: str) -> list[np.ndarray]:
    dist.init_process_group()
    model = wrapped(kind)
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(2):
        model.zero_grad()
        accumulate(model, ragged(seed + step, size)[rank], loss, step == 1)
    found = gradients(model)
    dist.destroy_process_group()
    return found


KINDS = ("plain", "hybrid", "offload", "apart forced", "flat", "flat orig", "flat none",
         "flat hybrid", "flat hook", "flat none hook")  # fmt: skip


@pytest.mark.simulated
@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_mean_over_all_tokens(kind: str, loss: str) -> None:
    for ranks in (1, 2, 4):
        if ranks < (4 if "hybrid" in kind else 2 if "flat" in kind else 1):
            continue
        for seed in range(3):
            body = functools.partial(weighted, kind, seed, loss)
            for found in dist.simulate(body, ranks, seed=seed).results:
                for got, want in zip(found, alone(ragged(seed + 1, ranks)), strict=True):
                    SUMS.equal(got, want)
