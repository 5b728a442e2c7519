"""Compiled programs, written once for both libraries: ``T`` is ``disttrain`` or ``torch``.

Each case returns {name of a row: seconds}. The first call, which captures, is not in them.
"""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

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


def in_turn(eager: Callable[[], Any], compiled: Callable[[], Any], inner: int) -> dict[str, float]:
    """Seconds of a call of both, measured in turn, as ``eager`` and ``compiled``."""
    runs = {"eager": eager, "compiled": warm(compiled)}
    times: dict[str, list[float]] = {how: [] for how in runs}
    for _ in range(7):
        for how, run in runs.items():
            times[how].append(median_time(run, 5, inner))
    return {how: statistics.median(found) for how, found in times.items()}


def compiled_chain(T: Any) -> dict[str, float]:
    """Ten elementwise operations on a million floats, and their derivatives."""
    x, w = T.randn(1 << 20), T.randn(1 << 20, requires_grad=True)

    def backward() -> Any:
        w.grad = None
        _ten(w).sum().backward()

    one, both = T.compile(_ten), T.compile(backward)
    ahead, back = in_turn(lambda: _ten(x), lambda: one(x), 3), in_turn(backward, both, 3)
    return {
        "op: ten elementwise ops on 1M floats": ahead["eager"],
        "compiled: ten elementwise ops on 1M floats": ahead["compiled"],
        "op: the same, forward + backward": back["eager"],
        "compiled: the same, forward + backward": back["compiled"],
        "ratio: ten compiled ops to eager ones": ahead["compiled"] / ahead["eager"],
        "ratio: the same, forward + backward": back["compiled"] / back["eager"],
    }


def compiled_residual(T: Any) -> dict[str, float]:
    """A layer norm, GELU and a residual on 512 rows of 768, forward and backward."""
    T.manual_seed(0)
    F, norm = T.nn.functional, T.nn.LayerNorm(768)
    x = T.randn(512, 768, requires_grad=True)

    def run() -> Any:
        x.grad = norm.weight.grad = norm.bias.grad = None
        (x + F.gelu(norm(x))).sum().backward()

    times = in_turn(run, T.compile(run), 3)
    return {
        "compiled: layer norm, GELU, residual, with backward": times["compiled"],
        "ratio: layer norm, GELU, residual, to eager": times["compiled"] / times["eager"],
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


def _memory(make: Callable[[], Callable[[], Any]]) -> tuple[int, int]:
    """Bytes that a step holds at its peak: beyond what stays between steps (parameters, gradients,
    the optimizer's state), and with these."""
    tracemalloc.start()
    try:
        step = make()
        for _ in range(4):
            step()
        gc.collect()
        between = _array_bytes()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        step()
        beyond = tracemalloc.get_traced_memory()[1] - before
        return beyond, beyond + between
    finally:
        tracemalloc.stop()


def _array_bytes() -> int:
    """Bytes of arrays, by whoever traces what numpy allocates."""
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    found = tracemalloc.take_snapshot().filter_traces([arrays])
    return sum(trace.size for trace in found.traces)


def compiled_memory(T: Any) -> dict[str, float]:
    """What steps hold at their peaks, against eager ones. (Ours alone: as numpy counts it.)"""
    if T.__name__ != "disttrain":
        return {}
    steps = {
        "MLP": lambda: stepper(T, make_mlp(T), *images(T, 1024, 784)),
        "CNN": lambda: stepper(T, make_cnn(T), *images(T, 64, 1, 28, 28)),
        "GPT": lambda: gpt_stepper(T, small_gpt(T)),
    }
    found = {}
    for name, make in steps.items():
        eager, compiled = (_memory(m) for m in (make, lambda make=make: T.compile(make())))
        for what, was, now in zip(("", ", all counted"), eager, compiled, strict=True):
            found[f"ratio: peak of a compiled {name} step to eager{what}"] = now / was
    return found


def compiled_guards(T: Any) -> dict[str, float]:
    """What it costs to ask whether captures of 50 layers with 100 parameters hold. (Ours alone.)"""
    if T.__name__ != "disttrain":
        return {}
    Call = importlib.import_module("disttrain.compile.guards.arguments").Call
    model = T.nn.Sequential(*(T.nn.Linear(4, 4) for _ in range(50)))
    optimizer, x = T.optim.AdamW(model.parameters(), lr=1e-3), T.randn(2, 4)

    def forward(x: Any) -> Any:
        return model(x)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    found = {}
    for name, run in {"forward": T.compile(forward), "training step": T.compile(step)}.items():
        warm(lambda run=run: run(x))()
        ((entry, *_),) = run.entries.values()
        found[f"guards: {name} of 100 parameters"] = median_time(
            lambda entry=entry: entry.stale(Call((x,), {})), 50, 100
        )
    return found


_FIRST = """
import time
import disttrain as T
from benchmarks.models import gpt_stepper, small_gpt
step = T.compile(gpt_stepper(T, small_gpt(T)))
start = time.perf_counter()
step()
print(time.perf_counter() - start)
"""


def compiled_first(T: Any) -> dict[str, float]:
    """The first call of a compiled GPT step in a process that has computed nothing: without any
    compiled kernels, and with those of the process before. (Ours alone.)"""
    if T.__name__ != "disttrain":
        return {}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for how in ("nothing kept", "kernels kept"):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST], env={**os.environ, "XDG_CACHE_HOME": folder},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found[f"compiled: first GPT step, {how}"] = float(done.stdout)
    return found
