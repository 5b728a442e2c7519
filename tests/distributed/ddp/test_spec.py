"""DDP equals the fifteen-line one, and one process on the whole batch: models, ranks, options."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain_launcher import launch
from support.plain_ddp import PlainDDP
from support.rounding import Sums

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=4 * 24, depth=2 * 6 * 3)

STEPS, BATCH = 3, 24


class Block(nn.Module):
    """A small transformer block with causal attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.ff = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.ff(x).tanh()


class Chars(nn.Module):
    """A GPT in small; the head shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.blocks(self.emb(x))).mean(1)


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 11)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 11, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 11))


def frozen() -> nn.Module:
    m = mlp()
    m[0].requires_grad_(False)
    return m


def cnn() -> nn.Module:
    """With BatchNorm in evaluation, where a batch's parts are independent."""
    m = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(),
                      nn.Linear(12, 11))  # fmt: skip
    m[1].eval()
    return m


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": Chars, "frozen": frozen, "adapters": Adapted}


def batch(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 11, BATCH)
    if kind == "gpt":
        return rng.integers(0, 11, (BATCH, 5)), y
    return rng.standard_normal((BATCH, 1, 4, 4) if kind == "cnn" else (BATCH, 6)), y


def build(kind: str) -> nn.Module:
    manual_seed(3)
    return MODELS[kind]().double()


def train(m, module: nn.Module, x, y, micro: int, average=lambda: None) -> list[np.ndarray]:
    optimizer = optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        pieces = list(zip(np.split(x, micro), np.split(y, micro), strict=True))
        for i, (px, py) in enumerate(pieces):
            wait = i < micro - 1 and isinstance(m, dist.DistributedDataParallel)
            with m.no_sync() if wait else nullcontext():
                (F.cross_entropy(m(core.wrap(px)), core.wrap(py)) / micro).backward()
        average()
        optimizer.step()
    return [p.detach().numpy().copy() for p in module.parameters()]


def both(kind: str, micro: int, options: dict) -> tuple:
    """One rank's parameters after training with DDP, and with the specification."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = batch(kind)
    x, y = x[rank::size], y[rank::size]
    module = build(kind)
    ours = train(dist.DistributedDataParallel(module, **options), module, x, y, micro)
    module = build(kind)
    plain = PlainDDP(module)
    theirs = train(plain, module, x, y, micro, plain.average)
    dist.destroy_process_group()
    return ours, theirs


OPTIONS = {
    "default": {},
    "views, many buckets": {"bucket_cap_mb": 3e-4, "gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True, "bucket_cap_mb": 3e-4},
    "static": {"static_graph": True},
}
CASES = [
    (kind, ranks, micro, option)
    for k, kind in enumerate(MODELS)
    for n, option in enumerate(OPTIONS)
    for ranks, micro in [((1, 2, 3, 4)[(k + n) % 4], (1, 2, 4)[(2 * k + n) % 3])]
]


@pytest.mark.simulated
@pytest.mark.parametrize(("kind", "ranks", "micro", "option"), CASES)
def test_equals_the_specification(kind: str, ranks: int, micro: int, option: str) -> None:
    micro = micro if BATCH // ranks % micro == 0 else 2
    results = dist.simulate(lambda: both(kind, micro, OPTIONS[option]), ranks).results
    check(kind, results)


@pytest.mark.parametrize("kind", ["mlp", "gpt"])
def test_real_ranks_equal_the_specification(kind: str) -> None:
    check(kind, launch(lambda: both(kind, 2, {"bucket_cap_mb": 3e-4}), 2))


def check(kind: str, results: list) -> None:
    x, y = batch(kind)
    module = build(kind)
    alone = train(module, module, x, y, 1)
    for ours, theirs in results:
        for a, b, c, first in zip(ours, theirs, alone, results[0][0], strict=True):
            SUMS.equal(a, b)
            SUMS.equal(a, c)
            np.testing.assert_array_equal(a, first)
