"""Weights of virtual shards: the same bits on any number of ranks, and the mean over all tokens."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import invariant
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.invariant.shards import VirtualShards
from disttrain.distributed.invariant.weights import ShardWeights, mean
from disttrain.errors import AutogradError
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many tokens; layers, there and back, and shards.
SUMS = Sums(terms=64, depth=2 * 3 * 3)
F = nn.functional
STEPS, SHARDS, CLASSES = 2, 8, 5


def net() -> nn.Module:
    dt.manual_seed(3)
    return nn.Sequential(
        nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 12), nn.GELU(), nn.Linear(12, CLASSES)
    )


def ragged(step: int) -> list[tuple]:
    """Per virtual shard codes and targets of various lengths, some of them empty."""
    rng = np.random.default_rng(step)
    counts = rng.integers(0, 9, SHARDS)
    counts[step] = 0
    return [(rng.integers(0, 11, n), rng.integers(0, CLASSES, n)) for n in counts]


def train(kind: str, loss: str = "mean", double: bool = False):
    dist.init_process_group()
    model = net().double() if double else net()
    if kind == "ddp":
        run = dist.DistributedDataParallel(model, deterministic="global", virtual_shards=SHARDS)
    else:
        size = dist.get_world_size()
        mesh = dist.init_device_mesh("cpu", (2, size // 2)) if kind == "hsdp" else None
        fully_shard(model[2], mesh=mesh)
        run = fully_shard(model, mesh=mesh, deterministic="global", virtual_shards=SHARDS)
    optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
    norms, grads = [], []
    for step in range(STEPS):
        parts = ragged(step)
        for shard in run.shards.ids:
            codes, targets = map(dt.from_numpy, parts[shard])
            with run.weighted(len(codes), loss):
                F.cross_entropy(run(codes), targets, reduction=loss).backward()
        norms.append(float(invariant.clip_grad_norm_(model.parameters(), 0.3)))
        grads.append([whole(p.grad) for p in model.parameters()])
        if not double:
            optimizer.step()
        optimizer.zero_grad()
    found = norms, grads, [whole(p.detach()) for p in model.parameters()]
    dist.destroy_process_group()
    return found


def whole(t) -> np.ndarray:
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).numpy().copy()


def bits(found):
    norms, grads, params = found
    return norms, [g.tobytes() for step in grads for g in step], [p.tobytes() for p in params]


@pytest.mark.simulated
@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_the_same_bits_on_any_number_of_ranks(loss):
    (alone,) = dist.simulate(functools.partial(train, "ddp", loss), 1).results
    for kind, ranks in (("ddp", 2), ("ddp", 4), ("fsdp", 1), ("fsdp", 2), ("fsdp", 4), ("fsdp", 8),
                        ("hsdp", 4)):  # fmt: skip
        for found in dist.simulate(functools.partial(train, kind, loss), ranks, seed=2).results:
            assert bits(found) == bits(alone), (kind, ranks)


def test_real_ranks_have_them_too():
    (alone,) = dist.simulate(functools.partial(train, "ddp"), 1).results
    for kind in ("ddp", "fsdp"):
        for found in launch(functools.partial(train, kind), 2):
            assert bits(found) == bits(alone)


@pytest.mark.simulated
def test_the_exact_mean_over_all_tokens():
    ((norms, grads, _),) = dist.simulate(functools.partial(train, "ddp", double=True), 1).results
    for step in range(STEPS):
        model = net().double()
        codes, targets = (np.concatenate([p[i] for p in ragged(step)]) for i in (0, 1))
        F.cross_entropy(model(dt.from_numpy(codes)), dt.from_numpy(targets)).backward()
        factor = min(1.0, 0.3 / (norms[step] + 1e-6))
        for got, p in zip(grads[step], model.parameters(), strict=True):
            SUMS.equal(got, p.grad.numpy() * factor)


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_weights_for_some_shards_only(kind):
    """An error on every rank; the next step is as if nothing had been."""

    def body():
        dist.init_process_group()
        model = nn.Linear(1, 1, bias=False)
        if kind == "ddp":
            run = dist.DistributedDataParallel(model, deterministic="global", virtual_shards=4)
        else:
            run = fully_shard(model, deterministic="global", virtual_shards=4)
        texts, found = [], []
        for step in range(3):
            for shard in run.shards.ids:
                last = run.shards.last
                heavy = shard == 3 if step == 0 else step == 1
                wrong = pytest.raises(AutogradError) if last and not step else nullcontext()
                with wrong as error, run.weighted(1 + shard) if heavy else nullcontext():
                    run(dt.full((1, 1), float(shard))).sum().backward()
            if not step:
                texts.append(str(error.value))
                assert model.weight.grad is None
            else:
                found.append(float(whole(model.weight.grad).item()))
                model.zero_grad()
        dist.destroy_process_group()
        return texts, found

    results = dist.simulate(body, 2).results
    assert results[0] == results[1]
    (text,), found = results[0]
    assert "virtual shards 3 of step 0 had a weight and 0, 1, 2 had none" in text
    assert found == [(0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 10, 1.5]


def test_nothing_at_all_and_no_numbers():
    weights = ShardWeights(VirtualShards(2, 0, 1), lambda array: None)
    for _ in range(2):
        weights.set_weight((0.0, 0.0))
        weights.begin()
        assert not weights.scaled(np.full(3, np.nan)).any()
        weights.shards.advance()
    divisor = weights.divisor()
    assert divisor == 0 and not mean(np.full(2, np.nan), divisor).any()
    assert weights.divisor() == 2  # of a step without weights
