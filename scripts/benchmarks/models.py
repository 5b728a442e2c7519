"""The networks that are measured and their training steps, for both libraries alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def median_time(fn: Callable[[], Any], repeats: int, inner: int = 1) -> float:
    """The median seconds of one call, over ``repeats`` blocks of ``inner`` calls."""
    for _ in range(max(2, inner // 10)):
        fn()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        times.append((time.perf_counter() - start) / inner)
    return statistics.median(times)


def make_mlp(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def stepper(T: Any, model: Any, x: Any, y: Any, loss_of: Any = None) -> Callable[[], None]:
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = loss_of or T.nn.functional.cross_entropy

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def images(T: Any, batch: int, *shape: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = T.from_numpy(rng.standard_normal((batch, *shape), dtype=np.float32))
    return x, T.from_numpy(rng.integers(0, 10, batch))


def make_gpt(T: Any, vocab: int, width: int, heads: int, layers: int, context: int) -> Any:
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            parts = self.qkv(self.ln1(x)).split(width, dim=2)
            q, k, v = [p.view(b, t, heads, c // heads).transpose(1, 2) for p in parts]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, idx: Any) -> Any:
            x = self.tokens(idx) + self.places(T.arange(idx.shape[1], device=idx.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT()


def small_gpt(T: Any) -> Any:
    """2 layers, 128 wide, 64 tokens of 65 kinds."""
    return make_gpt(T, 65, 128, 4, 2, 64)


def gpt_stepper(T: Any, model: Any) -> Callable[[], None]:
    """A training step of the small GPT on 8 sequences."""
    rng = np.random.default_rng(0)
    idx = T.from_numpy(rng.integers(0, 65, (8, 64)))
    target = T.from_numpy(rng.integers(0, 65, (8, 64)))
    F = T.nn.functional

    def loss_of(logits: Any, y: Any) -> Any:
        return F.cross_entropy(logits.view(-1, 65), y.view(-1))

    return stepper(T, model, idx, target, loss_of)
