"""Custom Functions and hooks in captured steps, alone and under the strategies: captured, with the
bits of eager steps, or eager by name."""

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
from disttrain.distributed.fsdp import fully_shard
from disttrain_launcher import launch


class Square(dt.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Net(nn.Module):
    def __init__(self, custom: bool) -> None:
        super().__init__()
        self.first, self.last, self.custom = nn.Linear(6, 8), nn.Linear(8, 3), custom

    def forward(self, x):
        h = F.gelu(self.first(x))
        return self.last(Square.apply(h) if self.custom else h)


def alone(net: nn.Module) -> nn.Module:
    return net


def replicated(net: nn.Module) -> nn.Module:
    return dist.DistributedDataParallel(net)


def sharded(net: Any) -> nn.Module:
    fully_shard(net.first)
    return fully_shard(net)


# --- what is set on a model, before it is wrapped; "late" ones on its parameters, afterwards ---
def nothing(model: Any) -> None:
    pass


def after_forward(model: Any) -> None:
    model.first.register_forward_hook(lambda m, args, out: out * 2)


def before_forward(model: Any) -> None:
    model.first.register_forward_pre_hook(lambda m, args: (args[0] * 2,))


def in_backward(model: Any) -> None:
    model.last.register_full_backward_hook(lambda m, came, g: (came[0] * 2,))


def on_gradients(model: Any) -> None:
    for p in model.parameters():
        p.register_hook(lambda g: g * 2)


def after_accumulation(model: Any) -> None:
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: None)


LATE = (on_gradients, after_accumulation)


def bits(t: dt.Tensor) -> bytes:
    part: Any = t.detach()
    return (part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes()


def train(wrap: Callable, custom: bool, hook: Callable, compiled: bool, rank: int = 0) -> tuple:
    dt.manual_seed(3)
    net = Net(custom)
    if hook not in LATE:
        hook(net)
    model = wrap(net)
    if hook in LATE:
        hook(model)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(rank), []
    for _ in range(5):
        x = dt.tensor(rng.standard_normal((5, 6)).astype(np.float32))
        loss = run(x, dt.tensor(rng.integers(0, 3, 5)))
        params = optimizer.param_groups[0]["params"]
        seen.append([bits(t) for t in (loss, *params, *(p.grad for p in params))])
    return seen, run.explain() if compiled else ""


def both_ways(wrap: Callable, custom: bool, hook: Callable) -> tuple[bool, str]:
    rank = 0
    if wrap is not alone:
        dist.init_process_group()
        rank = dist.get_rank()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train(wrap, custom, hook, False, rank)
        found, said = train(wrap, custom, hook, True, rank)
    return expected == found, said


@pytest.mark.parametrize(
    ("custom", "hook"),
    [(True, nothing), (False, after_forward), (False, before_forward), (False, in_backward),
     (False, on_gradients), (True, on_gradients)],
)  # fmt: skip
@pytest.mark.parametrize("wrap", [alone, replicated, sharded])
def test_functions_and_hooks_are_captured(wrap, custom, hook):
    run = lambda: both_ways(wrap, custom, hook)
    for equal, said in [run()] if wrap is alone else launch(run, 2):
        assert equal and " 0 eager" in said, said


@pytest.mark.parametrize("wrap", [alone, replicated, sharded])
def test_hooks_after_accumulation_are_eager_by_name(wrap):
    run = lambda: both_ways(wrap, False, after_accumulation)
    for equal, said in [run()] if wrap is alone else launch(run, 2):
        assert equal and " 1 eager" in said and "hooks on its gradient" in said, said
