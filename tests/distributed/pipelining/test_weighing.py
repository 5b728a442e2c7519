"""Weighted micro-batches: the mean over all tokens of a batch, of all replicas and shards."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed._composable.replicate import replicate
from disttrain.distributed.fsdp import FullyShardedDataParallel, fully_shard
from disttrain.distributed.pipelining import PipelineStage, get_schedule_class
from disttrain.distributed.pipelining.weighing import Count, Counts, apart, beside
from disttrain.errors import AutogradError, CollectiveMismatch, ConfigError, PeerFailed
from disttrain_launcher import launch
from support.rounding import Sums

# The longest sum has as many tokens; layers, there and back, and micro-batches.
SUMS = Sums(terms=128, depth=2 * 4 * 4)
F = nn.functional
MICROS, ROWS, LENGTH, WIDTH, CLASSES, IGNORED = 4, 2, 5, 6, 7, -100


def parts() -> list[nn.Module]:
    dt.manual_seed(2)
    return [
        m.double() for m in (
            nn.Sequential(nn.Embedding(11, WIDTH), nn.LayerNorm(WIDTH)),
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()),
            nn.Sequential(nn.Linear(WIDTH, 9), nn.GELU()),
            nn.Linear(9, CLASSES),
        )
    ]  # fmt: skip


def batch(seed: int, replica: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of codes and targets, most of which are padding; one micro-batch is all padding."""
    rng = np.random.default_rng([seed, replica])
    codes = rng.integers(0, 11, (MICROS * ROWS, LENGTH))
    targets = rng.integers(0, CLASSES, codes.shape)
    targets[rng.random(codes.shape) < rng.random((len(codes), 1))] = IGNORED
    empty = rng.integers(MICROS)
    targets[empty * ROWS : (empty + 1) * ROWS] = IGNORED
    if seed == 2 and not replica:
        targets[:] = IGNORED
    else:
        targets[(empty + 1) % MICROS * ROWS, 0] = 1
    return codes, targets


def loss_of(how: str):
    def loss(out, target):
        return F.cross_entropy(
            out.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction=how
        )

    return loss


def tokens(target) -> int:
    return int((target != IGNORED).sum())


def alone(seed: int, replicas: int) -> list[np.ndarray]:
    """One process with the rows of all replicas."""
    modules = parts()
    model = nn.Sequential(*modules)
    codes, targets = (np.concatenate([batch(seed, r)[i] for r in range(replicas)]) for i in (0, 1))
    loss_of("mean")(model(dt.from_numpy(codes)), dt.from_numpy(targets)).backward()
    return [[p.grad.numpy() for p in m.parameters()] for m in modules]


def wrapped(module: nn.Module, kind: str, mesh):
    if kind == "ddp":
        return dist.DistributedDataParallel(module, device_mesh=mesh)
    if kind == "replicate":
        return replicate(module, device_mesh=mesh)
    if kind == "fsdp":
        for m in module.children():
            if list(m.parameters()):
                fully_shard(m, mesh=mesh)
        return fully_shard(module, mesh=mesh)
    if kind == "flat":
        return FullyShardedDataParallel(module, device_mesh=mesh, use_orig_params=False)
    return module


def train(name: str, kind: str, replicas: int, loss: str, seed: int, numbers: bool):
    """Per stage of this rank its gradients after the second of two steps."""
    dist.init_process_group()
    ranks = dist.get_world_size() // replicas
    mesh = dist.init_device_mesh("cpu", (replicas, ranks), mesh_dim_names=("dp", "pp"))
    rank, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    cls, single = get_schedule_class(name), name in ("GPipe", "1F1B")
    cut = parts()
    if single:
        cut = [nn.Sequential(*cut[:2]), nn.Sequential(*cut[2:])]
    vee = name in ("ZBVZeroBubble", "DualPipeV")
    places = [rank] if single else [rank, 3 - rank] if vee else [rank, rank + ranks]
    modules = {i: wrapped(cut[i], kind, mesh["dp"]) for i in places}
    stages = [PipelineStage(modules[i], i, len(cut), group=mesh.get_group("pp")) for i in places]
    schedule = cls(stages[0] if single else stages, MICROS, loss_fn=loss_of(loss))
    for k in (seed + 10, seed):
        codes, targets = map(dt.from_numpy, batch(k, replica))
        counts = [tokens(t) for t in targets.chunk(MICROS)] if numbers else tokens
        for m in modules.values():
            m.zero_grad()
        with schedule.weight(counts if len(cut) - 1 in places else None, loss):
            schedule.step(*([codes] if 0 in places else []), target=targets)
    found = {i: gradients(m, kind) for i, m in modules.items()}
    dist.destroy_process_group()
    return len(cut), found


def gradients(module: nn.Module, kind: str) -> list[np.ndarray]:
    grads = [p.grad for p in module.parameters()]
    if kind == "flat":  # by the rank's part of the vector
        whole = [np.empty(grads[0].numel()) for _ in range(module.process_group.size)]
        module.process_group.all_gather(whole, np.ascontiguousarray(grads[0].numpy()))
        return [np.concatenate(whole)]
    return [(g.full_tensor() if hasattr(g, "full_tensor") else g).numpy().copy() for g in grads]


def check(results, seed: int, replicas: int, kind: str) -> None:
    wanted = alone(seed, replicas)
    for num_stages, found in results:
        step = 4 // num_stages
        for i, grads in found.items():
            want = [g for m in wanted[i * step : (i + 1) * step] for g in m]
            if kind == "flat":
                flat = np.concatenate([g.reshape(-1) for g in want])
                SUMS.equal(grads[0][: flat.size], flat)
                continue
            for got, g in zip(grads, want, strict=True):
                SUMS.equal(got, g)


@pytest.mark.simulated
@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize(
    "name",
    ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble",
     "DualPipeV"],
)  # fmt: skip
def test_the_exact_mean_over_all_tokens(name: str, loss: str) -> None:
    for kind, replicas in (("plain", 1), ("ddp", 2), ("replicate", 2), ("fsdp", 2), ("flat", 2)):
        for seed in range(2 if replicas == 1 else 3):
            body = functools.partial(train, name, kind, replicas, loss, seed, seed == 1)
            results = dist.simulate(body, 2 * replicas, seed=seed).results
            check(results, seed, replicas, kind)


def test_real_ranks() -> None:
    body = functools.partial(train, "1F1B", "fsdp", 2, "mean", 1, False)
    check(launch(body, 4), 1, 2, "fsdp")


def on_two(body, loss_fn=None):
    """``body(schedule, rank, stage)`` on two ranks with a layer each."""

    def inside():
        dist.init_process_group()
        rank = dist.get_rank()
        dt.manual_seed(rank)
        stage = PipelineStage(nn.Linear(3, 3), rank, 2)
        schedule = get_schedule_class("1F1B")(stage, 2, loss_fn=loss_fn or F.mse_loss)
        found = body(schedule, rank, stage)
        dist.destroy_process_group()
        return found

    return dist.simulate(inside, 2).results


@pytest.mark.simulated
def test_what_is_no_weight_is_told_on_all_ranks() -> None:
    def body(schedule, rank, stage):
        told = []
        x, y = dt.ones(4, 3), dt.zeros(4, 3)
        given = (None, 3, [1], [1, 2, 3], [1, -1], [1, float("nan")], lambda target: "many")
        for counts in given:
            with pytest.raises((ConfigError, ValueError, PeerFailed)) as error:
                with schedule.weight(counts if rank else None):
                    schedule.step(x, target=y)
            notes = getattr(error.value, "__notes__", ())
            told.append("(rank 1)" in str(error.value) + str(notes))
        with pytest.raises(ConfigError, match="needed is 'mean' or 'sum'"):
            with schedule.weight([1, 1], "median"):
                pass
        with schedule.weight([3, 1] if rank else None):  # and the pipeline is usable
            schedule.step(x, target=y)
        return sum(told), float(stage.submod.weight.grad.abs().sum()) > 0

    assert on_two(body) == [(7, True), (7, True)]


@pytest.mark.simulated
def test_nothing_at_all_is_nothing() -> None:
    """Though its mean is no number."""

    def body(schedule, rank, stage):
        losses: list = []
        with schedule.weight(dt.tensor([0, 0])):
            schedule.step(dt.ones(4, 3), target=dt.zeros(4, 3), losses=losses)
        return [p.grad.abs().sum().item() for p in stage.submod.parameters()]

    found = on_two(body, lambda out, target: F.mse_loss(out, target) * float("nan"))
    assert found == [[0.0, 0.0]] * 2


@pytest.mark.simulated
def test_steps_outside_of_the_block_are_as_ever() -> None:
    def body(schedule, rank, stage):
        x, y = dt.ones(4, 3), dt.arange(12.0).reshape(4, 3)
        found = []
        for block in (
            nullcontext(),
            schedule.weight([5, 1]),
            nullcontext(),
            schedule.weighted([1, 1]),
        ):
            stage.submod.zero_grad()
            with block:
                schedule.step(x, target=y)
            found.append(stage.submod.weight.grad.numpy().copy())
        np.testing.assert_array_equal(found[0], found[2])
        np.testing.assert_array_equal(found[0], found[3])
        return bool((found[0] != found[1]).any())

    assert on_two(body) == [True, True]


def test_counts_are_data() -> None:
    counts = Counts(len, "mean").of(["abc", "d", ""], 3)
    assert counts == [Count(3, 4), Count(1, 4), Count(0, 4)]
    assert [Counts(len, "mean").seed(c) for c in counts] == [0.75, 0.25, 0.0]
    assert [Counts(len, "sum").seed(c) for c in counts] == [0.25, 0.25, 0.0]
    assert [c.weight() for c in counts] == [(3, 4), (1, 4), (0, 0)]
    assert counts[0].weight(counts=False) == (0, 4)
    with pytest.raises(ConfigError, match="without a target"):
        Counts(len, "mean").of(None, 3)
    for count in (None, counts[1]):
        assert apart(beside(("g",), count)) == (("g",), count)


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_weights_of_some_replicas_only_are_an_error_on_all(kind: str) -> None:
    def body():
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
        rank, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
        module = wrapped(nn.Sequential(nn.Linear(3, 3)), kind, mesh["dp"])
        stage = PipelineStage(module, rank, 2, group=mesh.get_group("pp"))
        schedule = get_schedule_class("1F1B")(stage, 2, loss_fn=F.mse_loss)
        with schedule.weight([1, 2]) if replica else nullcontext():
            with pytest.raises((AutogradError, CollectiveMismatch, PeerFailed)) as error:
                schedule.step(*([] if rank else [dt.ones(4, 3)]), target=dt.zeros(4, 3))
        return str(error.value)

    said = {
        "ddp": "use weight(...) on every rank, or on none",
        "fsdp": "weighted(n): on every rank",
    }
    for text in dist.simulate(body, 4).results:
        assert said[kind] in text
