"""DDP of random models equals the fifteen-line one: sharing, freezing, skipping, options."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.core.random import manual_seed
from support.plain_ddp import PlainDDP
from support.rounding import Sums

pytestmark = pytest.mark.simulated

WIDTH = 5
SUMS = Sums(terms=3 * 4 * 4, depth=2 * 6 * 3)  # rows of ranks and parts; layers, and steps


class Layers(nn.Module):
    """Some layers, each used as its step says: once, twice, checkpointed, or on some ranks only."""

    def __init__(self, steps: list[tuple[str, str]]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList([self.make(kind) for kind, _ in steps])
        self.scale = nn.Parameter(core.wrap(np.ones(WIDTH)))

    def make(self, kind: str) -> nn.Module:
        if kind == "linear":
            return nn.Linear(WIDTH, WIDTH)
        if kind == "norm":
            return nn.LayerNorm(WIDTH)
        if kind == "half":  # another element type: a bucket of its own
            return nn.Linear(WIDTH, WIDTH).float()
        return nn.Sequential(nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH))

    def forward(self, x, skipping: bool):
        x = x * self.scale
        for (kind, use), layer in zip(self.steps, self.layers, strict=True):
            if use == "some ranks" and skipping:
                continue
            if kind == "half":
                h = layer(x.float()).double()
            elif use == "checkpointed":
                h = checkpoint(layer, x, use_reentrant=False)
            else:
                h = layer(x)
            x = x + h.tanh()
            if use == "twice" and kind != "half":
                x = x + layer(x)
        return x


def draw(seed: int) -> tuple[list, dict[str, Any]]:
    """A model and what is done with it."""
    rng = np.random.default_rng(seed)
    kinds = ["linear", "norm", "narrow", "half"]
    uses = ["once", "twice", "checkpointed", "some ranks"]
    steps = [(str(rng.choice(kinds)), str(rng.choice(uses))) for _ in range(rng.integers(1, 6))]
    plan = {
        "ranks": int(rng.integers(1, 5)), "micro": int(rng.integers(1, 5)),
        "frozen": int(rng.integers(0, 4)), "to_none": bool(rng.integers(2)),
        "options": {
            "bucket_cap_mb": [None, 1e-4, 5e-4][rng.integers(3)],
            "gradient_as_bucket_view": bool(rng.integers(2)),
            "find_unused_parameters": any(use == "some ranks" for _, use in steps),
        },
        "hook": bool(rng.integers(3) == 0),
    }  # fmt: skip
    if not plan["options"]["find_unused_parameters"]:
        plan["options"]["static_graph"] = bool(rng.integers(2))
    return steps, plan


def average(state, bucket):
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0])


def build(steps: list, plan: dict) -> nn.Module:
    manual_seed(4)
    m = Layers(steps)
    for kind, layer in zip([k for k, _ in steps], m.layers, strict=True):
        layer.float() if kind == "half" else layer.double()
    if plan["frozen"] == 0:
        m.layers[0].requires_grad_(False)
    return m


def train(m, module: nn.Module, steps: list, plan: dict, after=lambda: None) -> list:
    """Gradients of each step and parameters at the end."""
    optimizer = optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    rng = np.random.default_rng(dist.get_rank())
    found = []
    for step in range(3):
        optimizer.zero_grad(set_to_none=plan["to_none"])
        for k in range(plan["micro"]):
            last = k == plan["micro"] - 1
            sync = last or not isinstance(m, dist.DistributedDataParallel)
            x = core.wrap(rng.standard_normal((3, WIDTH)))
            with nullcontext() if sync else m.no_sync():
                skipping = (step + dist.get_rank() + k) % 2 == 1
                (m(x, skipping) ** 2).mean().backward()
        after()
        found.append([None if p.grad is None else p.grad.numpy().copy()
                      for p in module.parameters()])  # fmt: skip
        optimizer.step()
    return [*found, [p.detach().numpy().copy() for p in module.parameters()]]


def both(steps: list, plan: dict) -> tuple:
    dist.init_process_group()
    module = build(steps, plan)
    m = dist.DistributedDataParallel(module, **plan["options"])
    if plan["hook"]:
        m.register_comm_hook(None, average)
    ours = train(m, module, steps, plan)
    module = build(steps, plan)
    plain = PlainDDP(module)
    theirs = train(plain, module, steps, plan, plain.average)
    dist.destroy_process_group()
    return ours, theirs


@pytest.mark.parametrize("seed", range(24))
def test_equals_the_specification(seed: int) -> None:
    steps, plan = draw(seed)
    results = dist.simulate(lambda: both(steps, plan), plan["ranks"], seed=seed).results
    for ours, theirs in results:
        for mine, want, first in zip(ours, theirs, results[0][0], strict=True):
            for a, b, c in zip(mine, want, first, strict=True):
                if a is None:  # used nowhere: the specification has zeros
                    assert b is None or not b.any()
                    continue
                narrow = any(kind == "half" for kind, _ in steps)
                size = max(1.0, np.abs(b).max())
                apart = SUMS.apart(size, np.float32 if narrow else np.float64)
                np.testing.assert_allclose(a, b, rtol=0, atol=apart)
                np.testing.assert_array_equal(a, c)
