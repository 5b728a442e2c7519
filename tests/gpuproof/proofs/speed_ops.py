"""What single operations cost: launches from Python, products, attention, rows, an optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..journal import Job
from .libraries import compare, libraries
from .places import start


def prove(job: Job) -> None:
    """Numbers beside PyTorch's eager ones."""
    start(job)
    found = libraries(job)
    n = 1 if job.real else 64  # a rehearsal is so much smaller
    rounds = {"rounds": 7 if job.real else 1}
    for size in (8, 1 << 20):
        ways = {k: _add(T, size // (1 if size == 8 else n)) for k, T in found.items()}
        compare(job, f"x + 1, {size} elements", ways, "us", _micro,
                inner=500 if job.real else 3, **rounds)  # fmt: skip
    for kind, side in (("bfloat16", 4096), ("bfloat16", 8192), ("float32", 4096)):
        side //= n
        ways = {k: _product(T, kind, side) for k, T in found.items()}
        flops = 2.0 * side**3
        compare(job, f"product {side}^3 {kind}", ways, "TFLOP/s", lambda s, f=flops: f / s / 1e12,
                inner=10 if job.real else 1, **rounds)  # fmt: skip
    shape = (8, 12, 1024 // n, 64)
    for back in (False, True):
        ways = {k: _attention(T, shape, back) for k, T in found.items()}
        name = f"causal attention {list(shape)} bfloat16{' and backward' if back else ''}"
        compare(job, name, ways, "ms", _milli, inner=10 if job.real else 1, **rounds)
    rows = 16384 // n
    for name, make in (("softmax", _softmax), ("layer norm", _layer_norm)):
        ways = {k: make(T, rows) for k, T in found.items()}
        compare(job, f"{name} and backward {rows} x 1024 bfloat16", ways, "ms", _milli,
                inner=20 if job.real else 1, **rounds)  # fmt: skip
    ways = {k: _loss(T, 8192 // n, 50304 // n) for k, T in found.items()}
    compare(job, f"cross entropy and backward {8192 // n} x {50304 // n}", ways, "ms", _milli,
            inner=5 if job.real else 1, **rounds)  # fmt: skip


def _micro(seconds: float) -> float:
    return seconds * 1e6


def _milli(seconds: float) -> float:
    return seconds * 1e3


def _normal(T: Any, *shape: int, kind: str = "float32", grad: bool = False) -> Any:
    host = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    there = T.from_numpy(host).to("cuda").to(getattr(T, kind))
    return there.requires_grad_() if grad else there


def _add(T: Any, size: int) -> Any:
    x = _normal(T, size)
    return lambda: x + 1


def _product(T: Any, kind: str, side: int) -> Any:
    a, b = _normal(T, side, side, kind=kind), _normal(T, side, side, kind=kind)
    return lambda: a @ b


def _attention(T: Any, shape: tuple, back: bool) -> Any:
    q, k, v = (_normal(T, *shape, kind="bfloat16", grad=back) for _ in range(3))
    g = _normal(T, *shape, kind="bfloat16")
    attend = T.nn.functional.scaled_dot_product_attention

    def run() -> None:
        out = attend(q, k, v, is_causal=True)
        if back:
            q.grad = k.grad = v.grad = None
            out.backward(g)

    return run


def _softmax(T: Any, rows: int) -> Any:
    x = _normal(T, rows, 1024, kind="bfloat16", grad=True)
    g = _normal(T, rows, 1024, kind="bfloat16")

    def run() -> None:
        x.grad = None
        T.nn.functional.softmax(x, dim=-1).backward(g)

    return run


def _layer_norm(T: Any, rows: int) -> Any:
    layer = T.nn.LayerNorm(1024).to("cuda").to(T.bfloat16)
    x = _normal(T, rows, 1024, kind="bfloat16", grad=True)
    g = _normal(T, rows, 1024, kind="bfloat16")

    def run() -> None:
        x.grad = layer.weight.grad = layer.bias.grad = None
        layer(x).backward(g)

    return run


def _loss(T: Any, rows: int, classes: int) -> Any:
    x = _normal(T, rows, classes, kind="bfloat16", grad=True)
    y = T.from_numpy(np.random.default_rng(1).integers(0, classes, rows)).to("cuda")

    def run() -> None:
        x.grad = None
        T.nn.functional.cross_entropy(x, y).backward()

    return run
