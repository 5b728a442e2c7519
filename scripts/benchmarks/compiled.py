"""Compiled programs, written once for both libraries: ``T`` is ``disttrain`` or ``torch``.

Each case returns {name of a row: seconds}. The first call, which captures, is not in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import make_cnn
from benchmarks.models import (
    gpt_stepper,
    images,
    make_gpt,
    make_mlp,
    median_time,
    small_gpt,
    stepper,
)


def _ten(x: Any) -> Any:
    """Ten operations on elements."""
    y = (x * 2.0 + 1.0).relu() - x
    return ((y * y + x) * 0.5 - y).abs() + 1.0


def warm(run: Callable[[], Any]) -> Callable[[], Any]:
    """``run``, called a few times."""
    for _ in range(8):
        run()
    return run


def compiled_chain(T: Any) -> dict[str, float]:
    """Ten elementwise operations on a million floats, and their derivatives."""
    x, w = T.randn(1 << 20), T.randn(1 << 20, requires_grad=True)

    def backward() -> Any:
        w.grad = None
        _ten(w).sum().backward()

    one, both = T.compile(_ten), T.compile(backward)
    return {
        "op: ten elementwise ops on 1M floats": median_time(lambda: _ten(x), 15, 5),
        "compiled: ten elementwise ops on 1M floats": median_time(warm(lambda: one(x)), 15, 5),
        "op: the same, forward + backward": median_time(backward, 15, 3),
        "compiled: the same, forward + backward": median_time(warm(both), 15, 3),
    }


def _row_programs(T: Any) -> dict[str, Callable[[], Any]]:
    F, norm = T.nn.functional, T.nn.LayerNorm(512)
    x, g = T.randn(2048, 512, requires_grad=True), T.randn(2048, 512)
    scores, mask = T.randn(8, 4, 128, 128, requires_grad=True), T.rand(128, 128) < 0.3
    gs = T.randn(8, 4, 128, 128)

    def block() -> Any:
        x.grad = norm.weight.grad = norm.bias.grad = None
        y = x + F.gelu(norm(x))
        y.backward(g)
        return y

    def masked() -> Any:
        scores.grad = None
        y = F.softmax((scores * 0.125).masked_fill(mask, float("-inf")), -1)
        y.backward(gs)
        return y

    return {
        "layer norm + gelu + residual 2048x512": block,
        "softmax with scale and mask 8x4x128x128": masked,
    }


def compiled_rows(T: Any) -> dict[str, float]:
    """Operations on rows with elementwise ones around them, forward and backward."""
    found = {}
    for name, run in _row_programs(T).items():
        found[f"op: {name}"] = median_time(run, 15, 3)
        found[f"compiled: {name}"] = median_time(warm(T.compile(run)), 15, 3)
    return found


def compiled_mlp(T: Any) -> dict[str, float]:
    """The training steps of an MLP and of a tiny one."""
    T.manual_seed(0)
    tiny = T.nn.Sequential(T.nn.Linear(16, 16), T.nn.ReLU(), T.nn.Linear(16, 10))
    steps = {
        "MLP 784-256-256-10, batch 64": stepper(T, make_mlp(T), *images(T, 64, 784)),
        "MLP 16-16-10, batch 8": stepper(T, tiny, *images(T, 8, 16)),
    }
    return {
        f"compiled step: {name}": median_time(warm(T.compile(step)), 30, 10)
        for name, step in steps.items()
    }


def compiled_cnn(T: Any) -> dict[str, float]:
    """The training step of a small convolutional network."""
    T.manual_seed(0)
    step = T.compile(stepper(T, make_cnn(T), *images(T, 64, 1, 28, 28)))
    return {"compiled step: CNN 16-32, batch 64 of 28x28": median_time(warm(step), 15, 3)}


def compiled_gpt(T: Any) -> dict[str, float]:
    """The training step of a small GPT."""
    T.manual_seed(0)
    step = T.compile(gpt_stepper(T, small_gpt(T)))
    return {"compiled step: GPT 2 layers x 128, 8 x 64 tokens": median_time(warm(step), 15, 3)}


def compiled_lengths(T: Any) -> dict[str, float]:
    """The training step of a GPT over 100 lengths of sequences (captures included), and again."""
    T.manual_seed(0)
    F = T.nn.functional
    model = make_gpt(T, 65, 128, 4, 2, 128)
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-3)

    @T.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x).view(-1, 65), y.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    batches = [(T.randint(0, 65, (4, n)), T.randint(0, 65, (4, n))) for n in range(20, 120)]

    def turn() -> float:
        start = time.perf_counter()
        for x, y in batches:
            step(x, y)
        return time.perf_counter() - start

    return {
        "compiled step: GPT, 100 lengths, each for the first time": turn(),
        "compiled step: GPT, 100 lengths again": min(turn(), turn()),
    }
