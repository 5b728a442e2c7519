"""Captured steps of models that ``fully_shard`` has sharded: the bits of eager steps on the same
ranks, and the same errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from disttrain.distributed.tensor import Shard, init_device_mesh
from disttrain_launcher import launch
from support.cases.training_steps import (
    added,
    clipped,
    dropped_last,
    in_autocast,
    read_norm,
    two_backwards,
    two_forwards,
    zeroed,
)

STEPS = 7


class Block(nn.Module):
    """Dropout, norms, attention; the weights of a product used transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.1)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.scale = nn.Parameter(dt.ones(16))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).split(16, -1)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(h @ self.out.weight.T + self.out.bias) * (self.scale * 2 - 1)


class Gpt(nn.Module):
    """Two blocks, with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        h = self.table(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h).reshape(-1, 11)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 16), nn.GELU(), nn.Sequential(nn.Linear(16, 13), nn.BatchNorm1d(13)),
        nn.ReLU(), nn.Linear(13, 5),
    )  # fmt: skip


class Two(nn.Module):
    """Two layers with a unit each."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = fully_shard(nn.Linear(20, 5)), fully_shard(nn.Linear(20, 5))

    def forward(self, x):
        return self.a(x), self.b(x)


def two() -> nn.Module:
    dt.manual_seed(3)
    return fully_shard(Two())


def sharded(make: Callable = mlp, **options: Any) -> nn.Module:
    """A model with a unit for each part and one for the rest."""
    dt.manual_seed(3)
    model = make()
    parts = model.blocks if make is Gpt else (model[0], model[2])
    for part in parts:
        fully_shard(part, **options)
    return fully_shard(model, **options)


def one_unit(**options: Any) -> nn.Module:
    dt.manual_seed(3)
    return fully_shard(mlp(), **options)


def grouped(**options: Any) -> nn.Module:
    """Two modules that share a unit."""
    dt.manual_seed(3)
    model = mlp()
    fully_shard([model[0], model[2]], **options)
    return fully_shard(model, **options)


def frozen(**options: Any) -> nn.Module:
    """A unit that is not trained, and one that is in part."""
    dt.manual_seed(3)
    model = mlp()
    model[2].requires_grad_(False)
    model[4].bias.requires_grad_(False)
    fully_shard(model[2], **options)
    return fully_shard(model, **options)


def replicated(**options: Any) -> nn.Module:
    """Replicas and shards."""
    return sharded(mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "fsdp")), **options)


def prefetching(**options: Any) -> nn.Module:
    model = sharded(**options)
    model.set_modules_to_forward_prefetch([model[0], model[2]])
    model[2].set_modules_to_backward_prefetch([model[0]])
    return model


def weights_kept() -> nn.Module:
    model = sharded()
    model.set_reshard_after_backward(False)
    return model


def doubling() -> nn.Module:
    model = sharded()
    model[0].set_all_reduce_hook(lambda reduced: reduced.mul_(2))
    return model


def batch(model: nn.Module, rng: np.random.Generator) -> tuple[dt.Tensor, dt.Tensor]:
    if isinstance(model, Gpt):
        return dt.tensor(rng.integers(0, 11, (4, 6))), dt.tensor(rng.integers(0, 11, 24))
    x = rng.standard_normal((8, 20)).astype(np.float32)
    return dt.tensor(x), dt.tensor(rng.integers(0, 5, 8))


# --- steps: (model, optimizer, x, y) -> what it returns -----------------------------------------
def plain(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).float(), y)
    loss.backward()
    optimizer.step()
    return loss


def accumulated(model, optimizer, x, y):
    optimizer.zero_grad()
    model.set_requires_gradient_sync(False)
    F.cross_entropy(model(x), y).backward()
    model.set_requires_gradient_sync(True)
    loss = F.cross_entropy(model(x * 0.5), y)
    loss.backward()
    optimizer.step()
    return loss


def summed(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    half = [p.grad.detach() for p in model.parameters()]
    first = sum((g * g).sum().full_tensor() for g in half)
    loss = F.cross_entropy(model(x * 0.5), y)
    loss.backward()
    optimizer.step()
    return loss, first, sum((g * g).sum().full_tensor() for g in half)


def replaced(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    for p in model.parameters():
        p.grad.mul_(0.5)
        p.grad = p.grad + 0.25 * p.detach()
    optimizer.step()
    return loss


def walked_twice(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    return loss


def evaluated(model, optimizer, x, y):
    loss = plain(model, optimizer, x, y)
    model.eval()
    with dt.no_grad():
        after = F.cross_entropy(model(x), y)
    model.train()
    return loss, after


def averaged(model, optimizer, x, y):
    """What is written to shards outside of the optimizer."""
    loss = plain(model, optimizer, x, y)
    with dt.no_grad():
        for p in model.parameters():
            p.mul_(0.99)
            p.data.add_(1e-3)
    return loss


def part_used(model, optimizer, x, y):
    """The last unit's parameters get no gradient."""
    optimizer.zero_grad()
    model(x)[0].square().mean().backward()
    optimizer.step()


def gathered_by_hand(model, optimizer, x, y):
    model.unshard()
    return plain(model, optimizer, x, y)


BF16 = MixedPrecisionPolicy(param_dtype=dt.bfloat16, reduce_dtype=dt.float32)
OUT = MixedPrecisionPolicy(param_dtype=dt.bfloat16, output_dtype=dt.float32)
COLUMNS = {"shard_placement_fn": lambda p: Shard(1) if p.shape == (16, 20) else None}

# name: (model, options of fully_shard, step)
CASES: dict[str, tuple[Callable, dict, Callable]] = {
    "plain": (sharded, {}, plain),
    "gpt": (sharded, {"make": Gpt}, plain),
    "one unit": (one_unit, {}, plain),
    "one unit for two": (grouped, {}, plain),
    "always dropped": (sharded, {"reshard_after_forward": True}, plain),
    "never dropped": (sharded, {"reshard_after_forward": False}, plain),
    "bfloat16": (sharded, {"mp_policy": BF16}, plain),
    "gpt in bfloat16": (sharded, {"make": Gpt, "mp_policy": BF16}, plain),
    "outputs cast": (one_unit, {"mp_policy": OUT}, plain),
    "columns": (sharded, COLUMNS, plain),
    "frozen": (frozen, {}, plain),
    "prefetching": (prefetching, {}, plain),
    "prefetching bfloat16": (prefetching, {"mp_policy": BF16}, plain),
    "weights kept": (weights_kept, {}, plain),
    "hook": (doubling, {}, plain),
    "dropped last": (sharded, {}, dropped_last),
    "zeroed": (sharded, {}, zeroed),
    "added": (sharded, {}, added),
    "clipped": (sharded, {}, clipped),
    "accumulated": (sharded, {}, accumulated),
    "accumulated bfloat16": (sharded, {"mp_policy": BF16}, accumulated),
    "summed": (sharded, {}, summed),
    "replaced": (sharded, {}, replaced),
    "two forwards": (sharded, {}, two_forwards),
    "two backwards": (sharded, {}, two_backwards),
    "walked twice": (sharded, {}, walked_twice),
    "evaluated": (sharded, {}, evaluated),
    "autocast": (sharded, {}, in_autocast),
    "averaged": (sharded, {}, averaged),
}
ON_FOUR: dict[str, tuple[Callable, dict, Callable]] = {
    "some ranks": (sharded, {"reshard_after_forward": 2}, plain),
    "replicas": (replicated, {}, plain),
    "replicas, accumulated": (replicated, {}, accumulated),
}
EAGER: dict[str, tuple[tuple, str]] = {
    "unused": ((two, {}, part_used), "does not reach"),
    "read norm": ((sharded, {}, read_norm), "that is spread over ranks"),
    "gathered by hand": ((sharded, {}, gathered_by_hand), "it calls unshard()"),
}


def bits(t: Any) -> Any:
    if not isinstance(t, dt.Tensor):
        return t
    part = t.detach()
    return (part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes()


def state(model: nn.Module, optimizer: Any) -> list:
    params = optimizer.param_groups[0]["params"]
    return [bits(t) for t in (*params, *model.buffers(), *(p.grad for p in params))]


def train(case: tuple, compiled: bool, options: dict) -> tuple:
    """What some steps leave, step by step; and what the compiled function says."""
    make, given, body = case
    rank = dist.get_rank()
    model = make(**given)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    rng = np.random.default_rng(rank)
    dt.manual_seed(11 + rank)
    net: Any = dt.compile(model) if compiled and options.get("compile") == "around" else model

    def step(x, y):
        return body(net, optimizer, x, y)

    run = dt.compile(step) if compiled and net is model else step
    seen = []
    for i in range(STEPS):
        if options.get("skip"):
            model.set_requires_gradient_sync(i % 3 == 2)
        if options.get("late"):
            model.set_is_last_backward(i % 2 == 1)
        if options.get("freeze") and i == 4:
            model[0].requires_grad_(False)
        result = run(*batch(model, rng))
        schedule.step()
        seen.append([bits(t) for t in dt.tree.leaves(result)] + state(model, optimizer))
    told = run if net is model else net.forward
    return seen, told.explain() if compiled else ""


def both_ways(case: tuple, **options: object) -> tuple[bool, str]:
    """On one rank: whether compiled steps equal eager ones, and what they say."""
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train(case, False, options)
        found, said = train(case, True, options)
    dist.destroy_process_group()
    return expected == found, said


@pytest.mark.parametrize("name", CASES)
def test_a_captured_step_has_the_bits_of_an_eager_one(name):
    for equal, said in launch(lambda: both_ways(CASES[name]), 2):
        assert equal and " 0 eager" in said, said


@pytest.mark.parametrize("name", ["plain", "gpt in bfloat16", "frozen", "accumulated"])
def test_so_it_has_where_ranks_share_no_memory(name):
    for equal, said in dist.simulate(lambda: both_ways(CASES[name]), 3, seed=5).results:
        assert equal and " 0 eager" in said, said


@pytest.mark.parametrize("name", ON_FOUR)
def test_shards_on_some_ranks_and_replicas(name):
    for equal, said in dist.simulate(lambda: both_ways(ON_FOUR[name]), 4).results:
        assert equal and " 0 eager" in said, said


@pytest.mark.parametrize("name", EAGER)
def test_what_is_not_captured_is_said_by_name(name):
    case, why = EAGER[name]
    for equal, said in launch(lambda: both_ways(case), 2):
        assert equal and " 1 eager" in said and why in said, said


@pytest.mark.parametrize("options", [{"skip": True}, {"freeze": True}], ids=str)
@pytest.mark.parametrize("name", ["plain", "bfloat16"])
def test_what_changes_between_steps_is_captured_anew(name, options):
    body = added if "skip" in options else plain
    case = (*CASES[name][:2], body)
    for equal, said in launch(lambda: both_ways(case, **options), 2):
        assert equal and " 0 eager" in said, said


def one_captures_while_the_other_replays() -> tuple:
    """Every rank has shapes of its own, so the ranks capture at different times."""
    dist.init_process_group()
    model = sharded()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    run = dt.compile(lambda x, y: plain(model, optimizer, x, y))
    for i in range(12):
        n = 4 + (i % 3 if dist.get_rank() else i % 2)
        run(dt.ones(n, 20), dt.zeros(n, dtype=dt.int64))
    return [bits(p.full_tensor()) for p in model.parameters()], run.explain()


def test_a_rank_may_capture_while_another_replays():
    (a, said), (b, other) = launch(one_captures_while_the_other_replays, 2)
    assert a == b and "0 eager" in said and "0 eager" in other
    assert said.splitlines()[0].split(": ")[-1] != other.splitlines()[0].split(": ")[-1]


def adversaries(compiled: bool) -> tuple[list, str]:
    """Two models in one step; a forward of one has no backward."""
    dt.manual_seed(0)
    maker, judge = (fully_shard(nn.Linear(*n)) for n in ((4, 6), (6, 2)))
    first, second = (optim.Adam(m.parameters()) for m in (maker, judge))

    def step(z, x):
        second.zero_grad()
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(maker(z).detach())).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        F.softplus(-judge(maker(z))).mean().backward()
        first.step()
        return loss

    run = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(dist.get_rank()), []
    for _ in range(STEPS):
        z, x = (dt.tensor(rng.standard_normal((5, n)).astype(np.float32)) for n in (4, 6))
        seen.append([bits(run(z, x)), *state(maker, first), *state(judge, second)])
    return seen, run.explain() if compiled else ""


def both_adversaries() -> tuple[bool, str]:
    dist.init_process_group()
    expected, _ = adversaries(False)
    found, said = adversaries(True)
    return expected == found, said


def test_two_models_in_one_step():
    for equal, said in launch(both_adversaries, 2):
        assert equal and " 0 eager" in said, said
