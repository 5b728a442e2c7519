"""Captured steps under DDP: the bits of eager steps on the same ranks, and the same errors."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.errors import CollectiveMismatch, LaunchError, PeerFailed
from disttrain_launcher import launch
from support.cases.training_steps import (
    added,
    clipped,
    dropped_last,
    dropped_late,
    in_autocast,
    plain,
    read_norm,
    two_backwards,
    two_forwards,
    zeroed,
)

STEPS = 10


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 5)

    def forward(self, x):
        return self.out(F.relu(self.norm(self.conv(x))).flatten(1))


class Gpt(nn.Module):
    """One block, with dropout and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.drop = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Dropout(0.1)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        h = self.table(x)
        q, k, v = self.qkv(self.norm(h)).split(16, -1)
        h = h + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return self.head(h).reshape(-1, 11)


class Two(nn.Module):
    """Two layers; ``both``: whether the second is used."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.a, self.b, self.both = nn.Linear(20, 5), nn.Linear(20, 5), both

    def forward(self, x):
        return (self.a(x), self.b(x)) if self.both else self.a(x)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 8), nn.ReLU(),
        nn.Linear(8, 5),
    )  # fmt: skip


def one_layer() -> nn.Module:
    return nn.Linear(20, 5)


def batch(make: Callable, rng: np.random.Generator) -> tuple[dt.Tensor, dt.Tensor]:
    if make is Gpt:
        return dt.tensor(rng.integers(0, 11, (4, 6))), dt.tensor(rng.integers(0, 11, 24))
    shape = (8, 1, 8, 8) if make is Cnn else (8, 20)
    x = rng.standard_normal(shape).astype(np.float32)
    return dt.tensor(x), dt.tensor(rng.integers(0, 5, 8))


# --- steps: (wrapper, optimizer, x, y) -> what it returns ---------------------------------------
def accumulated(ddp, optimizer, x, y):
    optimizer.zero_grad()
    with ddp.no_sync():
        F.cross_entropy(ddp(x), y).backward()
    half = [p.grad.detach() for p in ddp.parameters()]
    first = sum((g * g).sum() for g in half)
    loss = F.cross_entropy(ddp(x * 0.5), y)
    loss.backward()
    optimizer.step()
    return loss, first, sum((g * g).sum() for g in half)


def replaced(ddp, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(ddp(x), y)
    loss.backward()
    for p in ddp.parameters():
        p.grad.mul_(0.5)
        p.grad = p.grad + 0.25 * p.detach()
    optimizer.step()
    return loss, sum(p.grad.sum() for p in ddp.parameters())


def kept(ddp, optimizer, x, y):
    plain(ddp, optimizer, x, y)
    return [p.grad.detach() for p in ddp.parameters()]


def both_results(ddp, optimizer, x, y):
    optimizer.zero_grad()
    a, b = ddp(x)
    (F.cross_entropy(a, y) + F.cross_entropy(b, y)).backward()
    optimizer.step()
    return a, b


def one_result(ddp, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(ddp(x)[0], y).backward()
    optimizer.step()


CASES: dict[str, tuple[Callable, Callable, dict]] = {
    "mlp": (mlp, plain, {}),
    "cnn": (Cnn, plain, {}),
    "gpt": (Gpt, plain, {}),
    "many buckets": (mlp, plain, {"bucket_cap_mb": 0.0005}),
    "views": (mlp, plain, {"gradient_as_bucket_view": True}),
    "static graph": (mlp, plain, {"static_graph": True}),
    "all used": (mlp, plain, {"find_unused_parameters": True}),
    "dropped late": (mlp, dropped_late, {}),
    "dropped last": (mlp, dropped_last, {}),
    "zeroed": (mlp, zeroed, {}),
    "added": (mlp, added, {}),
    "clipped": (mlp, clipped, {}),
    "accumulated": (mlp, accumulated, {}),
    "replaced": (mlp, replaced, {}),
    "kept": (mlp, kept, {}),
    "kept views": (mlp, kept, {"gradient_as_bucket_view": True}),
    "both results": (lambda: Two(True), both_results, {}),
    "two forwards": (one_layer, two_forwards, {}),
    "autocast inside": (mlp, in_autocast, {}),
}
EAGER = {
    "unused": (lambda: Two(False), plain, {"find_unused_parameters": True}),
    "static and unused": (lambda: Two(False), plain, {"static_graph": True}),
    "one result": (lambda: Two(True), one_result, {"find_unused_parameters": True}),
    "two backwards": (one_layer, two_backwards, {}),
    "read norm": (mlp, read_norm, {}),
}
REASONS = {
    "unused": "does not reach", "static and unused": "does not reach",
    "one result": "does not reach", "two backwards": "have backwards of their own",
    "read norm": "after work with other ranks",
}  # fmt: skip


def bits(t: Any) -> Any:
    return t.detach().numpy().tobytes() if isinstance(t, dt.Tensor) else t


def hook(state: list, bucket: Any) -> Any:
    """A communication hook that counts its calls."""
    state.append(bucket.index())
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def train(case: tuple, compiled: bool, options: dict) -> tuple:
    """What ten steps leave, step by step: parameters, buffers, gradients, results."""
    make, body, given = case
    rank = dist.get_rank()
    dt.manual_seed(3)
    module = make()
    inner = dt.compile(module) if compiled and options.get("compile") == "inside" else module
    ddp = dist.DistributedDataParallel(inner, **given)
    calls: list[int] = []
    if options.get("hook"):
        ddp.register_comm_hook(calls, hook)
    net = dt.compile(ddp) if compiled and options.get("compile") == "around" else ddp
    optimizer = optim.AdamW(module.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    rng = np.random.default_rng(rank)
    dt.manual_seed(11 + rank)

    def step(x, y):
        return body(net, optimizer, x, y)

    told: Any = step
    if compiled:
        told = {"inside": inner, "around": net}.get(options.get("compile", ""), None)
        told = dt.compile(step) if told is None else told.forward
    run = told if compiled and "compile" not in options else step
    seen, results = [], []
    for i in range(STEPS):
        x, y = batch(make, rng)
        if options.get("skip") and i % 3:
            with ddp.no_sync():
                result = run(x, y)
        elif options.get("amp"):
            with dt.autocast("cpu", dtype=dt.bfloat16):
                result = run(x, y)
        elif options.get("weight"):
            with ddp.weight(1 + (rank + i) % 3):
                result = run(x, y)
        else:
            result = run(x, y)
        schedule.step()
        results.append(dt.tree.leaves(result))
        tensors = (*module.parameters(), *module.buffers())
        seen.append([bits(t) for t in tensors] + [bits(t.grad) for t in tensors])
    ended = [[bits(t) for t in found] for found in results]
    return (seen, ended, calls), told.explain() if compiled else ""


def both_ways(case: tuple, **options: object) -> tuple[bool, str]:
    """On one rank: whether compiled steps equal eager ones, and what they say."""
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train(case, False, options)
        found, said = train(case, True, options)
    dist.destroy_process_group()
    return expected == found, said


ON_THREE = ("mlp", "cnn", "gpt", "accumulated")


@pytest.mark.parametrize(("name", "ranks"), [*((n, 2) for n in CASES), *((n, 3) for n in ON_THREE)])
def test_a_captured_step_has_the_bits_of_an_eager_one(name, ranks):
    for equal, said in launch(lambda: both_ways(CASES[name]), ranks):
        assert equal and " 0 eager" in said, said


@pytest.mark.parametrize("name", EAGER)
def test_what_is_not_captured_is_said_by_name(name):
    for equal, said in launch(lambda: both_ways(EAGER[name]), 2):
        assert equal and " 1 eager" in said and REASONS[name] in said, said


@pytest.mark.parametrize("options", [
    {"hook": True}, {"skip": True}, {"amp": True}, {"weight": True},
    {"compile": "around"}, {"compile": "inside"},
], ids=str)  # fmt: skip
def test_what_surrounds_a_step(options):
    name = "added" if "skip" in options else "mlp"
    for equal, said in launch(lambda: both_ways(CASES[name], **options), 2):
        assert equal and " 0 eager" in said, said


def near_the_largest_number() -> tuple:
    """What eager steps and captured ones leave, where a gradient overflows that its share of the
    average would not."""
    dist.init_process_group()
    rng, found = np.random.default_rng(dist.get_rank()), []
    x = dt.tensor(rng.uniform(1, 2, (2, 20)).astype(np.float32) * 1e19)
    for compiled in (False, True):
        dt.manual_seed(3)
        module = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 5))
        ddp = dist.DistributedDataParallel(module)

        def step(x, ddp=ddp, module=module):
            module.zero_grad()
            ((ddp(x) * 1e19).sum()).backward()

        run = dt.compile(step) if compiled else step
        for _ in range(4):
            run(x)
        found.append([bits(p.grad) for p in module.parameters()])
    infinite = bool(dt.isinf(module[0].weight.grad).any())
    dist.destroy_process_group()
    return found[0] == found[1], infinite, run.explain()


def test_gradients_are_divided_when_they_are_whole():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for equal, infinite, said in launch(near_the_largest_number, 2):
            assert equal and infinite and " 0 eager" in said, said


def scaled() -> list:
    """Mixed precision with a scaler, whose checks stay outside of the captured part."""
    dist.init_process_group()
    seen = []
    for compiled in (False, True):
        dt.manual_seed(3)
        ddp = dist.DistributedDataParallel(mlp())
        optimizer = optim.SGD(ddp.parameters(), lr=0.1)
        scaler = dt.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)

        def part(x, y, scale, ddp=ddp, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(x), y)
            (loss * scale).backward()
            return loss

        run = dt.compile(part) if compiled else part
        rng = np.random.default_rng(dist.get_rank())
        for _ in range(6):
            run(*batch(mlp, rng), dt.tensor(scaler.get_scale()))
            scaler.scale(dt.ones(1))
            scaler.step(optimizer)
            scaler.update()
        seen.append([bits(t) for t in (*ddp.parameters(), *ddp.buffers())])
    return [*seen, run.explain()]


def test_a_scaler_around_a_captured_backward():
    for eager, found, said in launch(scaled, 2):
        assert eager == found and "0 eager" in said, said


def adversaries() -> list:
    """Two wrappers in one step; a forward of one has no backward."""
    dist.init_process_group()
    seen: list = []
    for compiled in (False, True):
        dt.manual_seed(0)
        maker, judge = (dist.DistributedDataParallel(nn.Linear(*n)) for n in ((4, 6), (6, 1)))
        first, second = (optim.Adam(m.parameters()) for m in (maker, judge))

        def step(z, x, maker=maker, judge=judge, first=first, second=second):
            second.zero_grad()
            loss = F.softplus(-judge(x)).mean() + F.softplus(judge(maker(z).detach())).mean()
            loss.backward()
            second.step()
            first.zero_grad()
            F.softplus(-judge(maker(z))).mean().backward()
            first.step()
            return loss

        run = dt.compile(step) if compiled else step
        rng = np.random.default_rng(dist.get_rank())
        found = []
        for _ in range(6):
            z, x = (dt.tensor(rng.standard_normal((5, n)).astype(np.float32)) for n in (4, 6))
            params = (*maker.parameters(), *judge.parameters())
            found.append([bits(run(z, x)), *map(bits, params), *(bits(p.grad) for p in params)])
        seen.append(found)
    return [*seen, run.explain()]


def frozen_later() -> list:
    """A layer is frozen between two replays."""
    dist.init_process_group()
    seen: list = []
    for compiled in (False, True):
        dt.manual_seed(0)
        ddp = dist.DistributedDataParallel(mlp())
        optimizer = optim.SGD(ddp.parameters(), lr=0.1)

        def step(x, y, ddp=ddp, optimizer=optimizer):
            return plain(ddp, optimizer, x, y)

        run = dt.compile(step) if compiled else step
        rng = np.random.default_rng(dist.get_rank())
        found = []
        for i in range(9):
            if i == 4:
                ddp.module[0].requires_grad_(False)
            found.append([bits(run(*batch(mlp, rng))), *map(bits, ddp.parameters())])
        seen.append(found)
    return [*seen, run.explain()]


@pytest.mark.parametrize("body", [adversaries, frozen_later])
def test_steps_of_odd_shapes(body):
    for eager, found, said in launch(body, 2):
        assert eager == found and "0 eager" in said, said


def uneven() -> tuple:
    """Ranks with different numbers of batches, in a join block."""
    dist.init_process_group()
    seen = []
    for compiled in (False, True):
        ddp, run = stepper(compiled=compiled)
        rng = np.random.default_rng(dist.get_rank())
        with ddp.join():
            for _ in range(5 + 2 * dist.get_rank()):
                run(*batch(one_layer, rng))
        seen.append([bits(p) for p in ddp.parameters()])
    return *seen, run.explain()


def test_a_rank_without_input_takes_part_in_replays():
    for eager, found, said in launch(uneven, 2):
        assert eager == found and "0 eager" in said, said


def test_simulated_ranks_capture_too():
    for equal, said in dist.simulate(lambda: both_ways(CASES["mlp"]), 2, seed=5).results:
        assert equal and " 0 eager" in said, said


# --- faults -------------------------------------------------------------------------------------
def stepper(compiled: bool = True) -> tuple:
    dt.manual_seed(0)
    ddp = dist.DistributedDataParallel(one_layer())
    optimizer = optim.SGD(ddp.parameters(), lr=0.1)

    def step(x, y):
        return plain(ddp, optimizer, x, y)

    return ddp, dt.compile(step) if compiled else step


def one_captures_while_the_other_replays() -> tuple:
    """One rank has one shape and the other several, so they capture at different times."""
    dist.init_process_group()
    ddp, run = stepper()
    for i in range(12):
        n = 4 + (i // 3 if dist.get_rank() else 0)
        run(dt.ones(n, 20), dt.zeros(n, dtype=dt.int64))
    return [bits(p) for p in ddp.parameters()], run.explain()


def test_a_rank_may_capture_while_another_replays():
    (a, said), (b, other) = launch(one_captures_while_the_other_replays, 2)
    assert a == b and "0 eager" in said and "0 eager" in other
    assert said.splitlines()[0].split(": ")[-1] != other.splitlines()[0].split(": ")[-1]


def killed_in_a_replay() -> str:
    dist.init_process_group()
    _, run = stepper()
    x, y = dt.ones(4, 20), dt.zeros(4, dtype=dt.int64)
    for i in range(8):
        if i == 6 and dist.get_rank():
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            run(x, y)
        except PeerFailed as failed:
            return str(failed)
    return "nothing"


def test_a_killed_rank_is_told_to_those_that_replay():
    with pytest.raises(LaunchError, match="rank 1"):
        launch(killed_in_a_replay, 2)


def another_collective() -> str:
    """Rank 1 leaves the step for another collective, when both replay."""
    dist.init_process_group()
    _, run = stepper()
    x, y = dt.ones(4, 20), dt.zeros(4, dtype=dt.int64)
    for _ in range(6):
        run(x, y)
    with pytest.raises(CollectiveMismatch) as caught:
        if dist.get_rank():
            dist.all_reduce(dt.ones(3))
        else:
            run(x, y)
    return str(caught.value)


def test_headers_are_compared_in_replays():
    said = launch(another_collective, 2)
    assert all("all_reduce" in text for text in said)


def raises_in_the_middle() -> tuple:
    """A label out of range is found by the replay; then the wrapper says that a backward broke
    off only where one had begun."""
    dist.init_process_group()
    ddp, run = stepper()
    x, y = dt.ones(4, 20), dt.zeros(4, dtype=dt.int64)
    for _ in range(4):
        run(x, y)
    with pytest.raises(Exception, match="9") as caught:
        run(x, y + 9)
    run(x, y)
    return type(caught.value).__name__, [bits(p) for p in ddp.parameters()]


def test_an_error_in_a_replay_leaves_the_wrapper_usable():
    (name, a), (other, b) = launch(raises_in_the_middle, 2)
    assert name == other and a == b
