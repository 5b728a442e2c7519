"""Networks of many kinds under ``fully_shard`` equal one process: convolutions with BatchNorm,
a GPT, shared embeddings, frozen parts, adapters; accumulation; checkpointing; modules called twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain.nn.functional as F
from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.comm.transports.shm import ShmTransport
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.core.random import manual_seed
from disttrain.distributed.fsdp import FSDPModule, fully_shard
from disttrain.ops import arange
from support.rounding import Steps, Sums

pytestmark = pytest.mark.simulated

STEPS, ROWS, VOCAB, TIME = 3, 12, 11, 5
ONE_STEP = Sums(terms=ROWS * TIME, depth=2 * 12)  # layers, there and back
ALL = Sums(ONE_STEP.terms, ONE_STEP.depth * STEPS)


class Block(nn.Module):
    """A transformer block; ``again``: its activations are computed twice."""

    def __init__(self, again: bool | None) -> None:
        super().__init__()
        self.ln1, self.ln2, self.again = nn.LayerNorm(8), nn.LayerNorm(8), again
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def inner(self, x: core.Tensor) -> core.Tensor:
        b, t, c = x.shape
        q, k, v = [p.view(b, t, 2, 4).transpose(1, 2) for p in self.qkv(self.ln1(x)).split(8, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))

    def forward(self, x: core.Tensor) -> core.Tensor:
        if self.again is None:
            return self.inner(x)
        return checkpoint(self.inner, x, use_reentrant=self.again)


class GPT(nn.Module):
    """Its head is the embedding of its tokens."""

    def __init__(self, again: bool | None = None, tied: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, 8), nn.Embedding(TIME, 8)
        self.blocks = nn.ModuleList([Block(again) for _ in range(2)])
        self.ln, self.head = nn.LayerNorm(8), nn.Linear(8, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, idx: core.Tensor) -> core.Tensor:
        x = self.tokens(idx) + self.places(arange(TIME))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Adapter(nn.Module):
    """A frozen layer beside a small trained one."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, 2, bias=False)
        self.b = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: core.Tensor) -> core.Tensor:
        return self.base(x) + self.b(self.a(x))


class Twice(nn.Module):
    """One layer called twice, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.same, self.last = nn.Linear(6, 7), nn.Linear(7, 7), nn.Linear(7, 4)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: core.Tensor) -> core.Tensor:
        x = F.relu(self.first(x))
        return self.last(F.relu(self.same(F.relu(self.same(x)))))


class Views(nn.Module):
    """Uses its weight through views, which backward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.weight = nn.Parameter(core.wrap(np.linspace(-1, 1, 24).reshape(6, 4).copy()))

    def forward(self, x: core.Tensor) -> core.Tensor:
        y = F.tanh(self.inner(x)) @ self.weight.view(4, 6).t()
        return y * self.weight[0]


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(),
                         nn.Linear(20, 4))  # fmt: skip


def adapters() -> nn.Module:
    return nn.Sequential(Adapter(nn.Linear(6, 9)), nn.ReLU(), Adapter(nn.Linear(9, 4)))


def each_child(m: nn.Module) -> None:
    for child in m.children():
        if any(True for _ in child.parameters()):
            fully_shard(child)
    fully_shard(m)


def blocks(m: nn.Module) -> None:
    for block in m.blocks:
        fully_shard(block)
    fully_shard(m)


def kept(m: nn.Module) -> None:
    for block in m.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(m, reshard_after_forward=False)


def images() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 2, 4, 4))


def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 6))


def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCAB, (ROWS, TIME + 1))


CASES: dict[str, tuple[Callable, Callable, Callable]] = {
    "gpt": (GPT, blocks, tokens),
    "gpt kept": (GPT, kept, tokens),
    "gpt checkpoint": (lambda: GPT(False), blocks, tokens),
    "gpt reentrant": (lambda: GPT(True), blocks, tokens),
    "adapters": (adapters, each_child, rows),
    "twice": (Twice, each_child, rows),
    "views": (Views, each_child, rows),
}


def loss_of(m: nn.Module, x: np.ndarray) -> core.Tensor:
    if x.dtype.kind == "i":
        logits = m(core.wrap(x[:, :-1].copy()))
        return F.cross_entropy(logits.reshape(-1, VOCAB), core.wrap(x[:, 1:].reshape(-1)))
    return m(core.wrap(x)).square().mean()


def optimizer_of(m: nn.Module) -> optim.AdamW:
    return optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2)


def train(m: nn.Module, optimizer: optim.AdamW, x: np.ndarray, micro: int, talk: bool) -> None:
    for _ in range(STEPS):
        optimizer.zero_grad()
        for i, part in enumerate(np.split(x, micro)):
            if isinstance(m, FSDPModule):
                m.set_requires_gradient_sync(talk or i == micro - 1)
            (loss_of(m, part) / micro).backward()
        optimizer.step()


def made(make: Callable) -> nn.Module:
    manual_seed(3)
    return make().double()


def values(m: nn.Module) -> list[np.ndarray]:
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in m.parameters()]
    return [w.detach().numpy().copy() for w in whole]


def alone(m: nn.Module, x: np.ndarray, micro: int) -> list[tuple[np.ndarray, Any]]:
    """Each parameter after training, and how much further than sums AdamW may take it."""
    optimizer = optimizer_of(m)
    steps = Steps(optimizer)
    train(m, optimizer, x, micro, True)
    return list(zip(values(m), steps.more(ONE_STEP, m.parameters()), strict=True))


def check(case: tuple, size: int, micro: int = 1, talk: bool = True, seed: int = 0) -> None:
    make, shard, inputs = case
    reference = made(make)
    want = alone(reference, inputs(), micro)

    def rank() -> tuple[list[np.ndarray], list[bool]]:
        dist.init_process_group()
        m = made(make)
        shard(m)
        train(m, optimizer_of(m), inputs()[dist.get_rank() :: size], micro, talk)
        result = values(m), [p.grad is None for p in m.parameters()]
        dist.destroy_process_group()
        return result

    without = [p.grad is None for p in reference.parameters()]
    for got, missing in dist.simulate(rank, size, seed=seed).results:
        assert missing == without
        for a, (b, more) in zip(got, want, strict=True):
            ALL.equal(a, b, more)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", list(CASES))
def test_equals_one_process(name: str, size: int) -> None:
    check(CASES[name], size)


@pytest.mark.parametrize("talk", [True, False])
@pytest.mark.parametrize(("size", "micro"), [(2, 3), (3, 2), (1, 4), (4, 3)])
@pytest.mark.parametrize("name", ["gpt", "adapters", "twice"])
def test_accumulation_equals_one_process(name: str, size: int, micro: int, talk: bool) -> None:
    check(CASES[name], size, micro=micro, talk=talk)


@pytest.mark.parametrize("name", list(CASES))
def test_without_shared_memory_equals_one_process(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(ShmTransport, "shares", False)
    check(CASES[name], 3)


def test_batch_norm_in_evaluation_equals_one_process() -> None:
    def make() -> nn.Module:
        return cnn().eval()

    check((make, each_child, images), 2)


def test_batch_norm_over_all_ranks_equals_one_process() -> None:
    reference = made(cnn)

    def rank() -> list[np.ndarray]:
        dist.init_process_group()
        m = nn.SyncBatchNorm.convert_sync_batchnorm(made(cnn))
        each_child(m)
        train(m, optimizer_of(m), images()[dist.get_rank() :: 3], 1, True)
        result = values(m) + [b.numpy() for b in m.buffers()]
        dist.destroy_process_group()
        return result

    want = alone(reference, images(), 1)
    mean, var, count = [b.numpy() for b in reference.buffers()]
    want += [(mean, want[1][1]), (var, 0.0), (count, 0.0)]  # a mean moves with the bias before it
    for got in dist.simulate(rank, 3).results:
        for a, (b, more) in zip(got, want, strict=True):
            ALL.equal(a, b, more)


def test_batch_norm_keeps_statistics_of_its_own_rank() -> None:
    def rank() -> list[np.ndarray]:
        dist.init_process_group()
        m, x = made(cnn), images()[dist.get_rank() :: 2]
        plain = made(cnn)
        each_child(m)
        loss_of(m, x).backward()
        loss_of(plain, x).backward()
        mine = [b.numpy() for b in m.buffers()]
        for a, b in zip(mine, plain.buffers(), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-12)
        out = [p.grad.full_tensor().numpy() for p in m.parameters()]
        dist.destroy_process_group()
        return out

    first, second = dist.simulate(rank, 2).results
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
