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
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from disttrain.distributed.fsdp.comm_hooks import DefaultState, allreduce_hook, reduce_scatter_hook
from disttrain.distributed.fsdp.grad_scaler import ShardedGradScaler
from disttrain.errors import AutogradError, CollectiveMismatch, ConfigError
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
    return [[(rng.integers(0, 11, n), rng.integers(0, CLASSES, n)) for n in row] for row in counts]


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
        with quiet, model.weighted(n, loss):
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


def test_real_ranks_have_the_bits_of_simulated_ones() -> None:
    body = functools.partial(weighted, "plain", 4, "mean")
    for found, wanted in zip(launch(body, 2), dist.simulate(body, 2).results, strict=True):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def one(policy: MixedPrecisionPolicy | None = None, kind=None, **mesh):
    model = nn.Linear(1, 1, bias=False).to(kind or dt.float64)
    return fully_shard(model, mp_policy=policy, **mesh)


def ask(model, value: float, count: float, sync: bool = True, loss: str = "mean") -> None:
    model.set_requires_gradient_sync(sync)
    with model.weighted(count, loss):
        kind = next(model.parameters()).dtype
        model(dt.full((1, 1), value, dtype=kind)).sum().backward()


def told(model) -> float:
    return float(next(model.parameters()).grad.full_tensor().float().item())


def on_two(body) -> list:
    def inside():
        dist.init_process_group()
        found = body(dist.get_rank())
        dist.destroy_process_group()
        return found

    return dist.simulate(inside, 2).results


@pytest.mark.simulated
def test_large_counts_in_half_types() -> None:
    def body(rank):
        found = []
        for kind in (dt.bfloat16, dt.float16):
            model = one(kind=kind)
            ask(model, 4.0 * rank, 1 + 2 * rank)
            found.append(told(model))
            model.zero_grad()  # sums over many tokens that float16 could not hold
            ask(model, 4.0, 70_000, sync=False)
            ask(model, 8.0, 70_000 * 3)
            found.append(told(model))
        policy = MixedPrecisionPolicy(param_dtype=dt.bfloat16, reduce_dtype=dt.float32)
        model = one(policy, dt.float32)
        ask(model, 4.0 * rank, 1 + 2 * rank)
        return [*found, told(model)]

    assert on_two(body) == [[3.0, 7.0, 3.0, 7.0, 3.0]] * 2


@pytest.mark.simulated
def test_no_samples_at_all() -> None:
    """The mean over nothing of a rank is no number, and does not count; over nothing at all, 0."""

    def body(rank):
        found = []
        for count in (2 * rank, 0):
            model = one()
            ask(model, 3.0 if count else float("nan"), count)
            found.append(told(model))
        return found

    assert on_two(body) == [[3.0, 0.0]] * 2


@pytest.mark.simulated
def test_weights_on_some_ranks_only() -> None:
    def body(rank):
        model = one()
        with model.weighted(3) if rank else nullcontext():
            with pytest.raises(CollectiveMismatch, match=r"of=weighted\(n\): on every rank or on"):
                model(dt.ones(1, 1, dtype=dt.float64)).sum().backward()
        return True

    assert on_two(body) == [True, True]


@pytest.mark.simulated
def test_weights_for_some_backwards_only() -> None:
    def body(rank):
        found = []
        for weighted_first in (False, True):
            model = one()
            model.set_requires_gradient_sync(False)
            with model.weighted(2) if weighted_first else nullcontext():
                model(dt.ones(1, 1, dtype=dt.float64)).sum().backward()
            model.set_requires_gradient_sync(True)
            out = model(dt.ones(1, 1, dtype=dt.float64)).sum()
            with nullcontext() if weighted_first else model.weighted(2):
                with pytest.raises(AutogradError, match="had a weight and some had none"):
                    out.backward()
            model.reset_iter_state()  # nothing stays of it
            ask(model, 2.0 + rank, 1)
            found.append(told(model))
        return found

    assert on_two(body) == [[2.5, 2.5]] * 2


@pytest.mark.simulated
def test_what_is_no_weight() -> None:
    def body(rank):
        model = one()
        for count, loss in ((-1, "mean"), (float("nan"), "mean"), (float("inf"), "sum"), (2, "x")):
            with pytest.raises(ConfigError, match="not negative"), model.weighted(count, loss):
                pass
        with pytest.raises(TypeError), model.weighted(None):
            pass
        outer = nn.Sequential(fully_shard(nn.Linear(2, 2)), fully_shard(nn.Linear(2, 2)))
        fully_shard(outer)
        outer(dt.ones(1, 2))
        with pytest.raises(RuntimeError, match="call it on the root"), outer[0].weighted(2):
            pass
        outer[0].set_requires_gradient_sync(False)
        with outer.weighted(2), pytest.raises(ConfigError, match="by some units and not by others"):
            outer(dt.ones(1, 2)).sum().backward()
        return True

    assert on_two(body) == [True, True]


@pytest.mark.simulated
def test_means_of_several_steps_add_up() -> None:
    """Without a zero_grad between: as gradients without weights do. Tensors are counts, too."""

    def body(rank):
        model, found = one(), []
        for _ in range(2):
            ask(model, 2.0 + rank, dt.tensor(1 + rank))  # (2 * 1 + 3 * 2) / 3
            found.append(told(model))
        ask(model, 4.0, 1, sync=False)
        ask(model, 8.0, np.int64(3))  # (4 * 1 + 8 * 3) / 4
        model(dt.full((1, 1), 2.0, dtype=dt.float64)).sum().backward()  # and one without weight
        return [*found, told(model)]

    for found in on_two(body):
        assert found == pytest.approx([8 / 3, 16 / 3, 16 / 3 + 7 + 2])


@pytest.mark.simulated
def test_a_share_takes_the_place_of_a_rank() -> None:
    """What divides by another number than that of ranks does so with weights, too."""

    def body(rank):
        found = []
        for factor in (2.0, 1.0, 8.0):
            model = one()
            model.set_gradient_divide_factor(factor)
            ask(model, 2.0 + rank, 1 + rank)
            found.append(told(model))
        return found

    for found in on_two(body):
        assert found == pytest.approx([8 / 3, 16 / 3, 2 / 3])


@pytest.mark.simulated
def test_replicas_that_are_reduced_later() -> None:
    def body():
        dist.init_process_group()
        rank = dist.get_rank()
        model = one(mesh=dist.init_device_mesh("cpu", (2, 2)))
        found = []
        for _ in range(2):
            model.zero_grad()
            for k in range(3):
                model.set_requires_all_reduce(k == 2)
                ask(model, float(k + rank), 1 + k + 3 * rank)
            found.append(told(model))
        dist.destroy_process_group()
        return found

    counts = [(k + r, 1 + k + 3 * r) for k in range(3) for r in range(4)]
    mean = sum(v * n for v, n in counts) / sum(n for _, n in counts)
    for found in dist.simulate(body, 4).results:
        assert found == pytest.approx([mean, mean])


@pytest.mark.simulated
def test_norms_scalers_and_unused_parameters() -> None:
    class Maybe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, x, both: bool):
            a, b = self.a(x), self.b(x)
            return a + b if both else a

    def body(rank):
        model = Maybe().double()
        fully_shard(model.b)
        fully_shard(model)
        scaler = ShardedGradScaler(init_scale=4.0)
        optimizer = dt.optim.SGD(model.parameters(), lr=0.0)
        with model.weighted(1 + rank):
            out = model(dt.full((1, 1), 3.0, dtype=dt.float64), rank == 1).sum()
            scaler.scale(out).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        grads = [p.grad.full_tensor().item() for p in model.parameters()]
        return [float(getattr(norm, "full_tensor", lambda: norm)()), *grads]

    for norm, a, b in on_two(body):
        assert (a, b) == pytest.approx((3, 2)) and norm == pytest.approx(13**0.5)


@pytest.mark.simulated
def test_a_repeated_step_takes_the_weight_of_each_time() -> None:
    def body(rank):
        def run(compiled: bool) -> list:
            model = fully_shard(net())

            def step(codes, targets):
                F.cross_entropy(model(codes), targets).backward()

            run_step = dt.compile(step) if compiled else step
            found = []
            for k in range(4):
                model.zero_grad()
                rng = np.random.default_rng(rank)
                codes, targets = rng.integers(0, 11, 4), rng.integers(0, CLASSES, 4)
                with model.weighted(1 + rank * k):
                    run_step(dt.from_numpy(codes), dt.from_numpy(targets))
                found.append([p.grad.full_tensor().numpy().tobytes() for p in model.parameters()])
            return found

        eager = run(False)
        assert eager[0] != eager[1]
        return eager == run(True)

    assert on_two(body) == [True, True]


@pytest.mark.simulated
def test_weight_is_weighted_where_no_parameter_has_that_name():
    def body(rank):
        model = fully_shard(nn.Sequential(nn.Linear(1, 1, bias=False).double()))
        with model.weight(1 + rank):
            model(dt.full((1, 1), float(rank)).double()).sum().backward()
        found = [float(model[0].weight.grad.full_tensor().item())]
        linear = fully_shard(nn.Linear(2, 2))
        assert isinstance(linear.weight, dt.Tensor)
        bare = fully_shard(nn.LayerNorm(2, elementwise_affine=False))
        assert bare.weight is None
        late = fully_shard(nn.Sequential(nn.Linear(2, 2)))
        late.weight = nn.Parameter(dt.ones(1))  # what the program adds comes first
        assert late.weight.item() == 1.0
        flat = FullyShardedDataParallel(FullyShardedDataParallel(nn.Sequential(nn.Linear(2, 2))))
        assert flat.weight.__self__ is flat and flat.weight.__func__ is type(flat).weighted
        inner = FullyShardedDataParallel(nn.Linear(2, 2), use_orig_params=True)
        with FullyShardedDataParallel.summon_full_params(inner):
            assert isinstance(inner.weight, dt.Tensor) and inner.weight.shape == (2, 2)
        with pytest.raises(AttributeError, match="weights"):
            _ = model.weights
        return found

    assert on_two(body) == [[2 / 3], [2 / 3]]  # (1 * 0 + 2 * 1) / 3
