"""Single kernels of one process, written once for both libraries: ``T`` is ``disttrain`` or
``torch``.

Each case returns {name of a row: seconds}. One thread each, as the driver sets it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.models import median_time


def copies(T: Any) -> dict[str, float]:
    """Copies into another order of memory."""
    a, x, y = T.randn(1024, 1024), T.randn(16, 64, 56, 56), T.randn(8, 128, 8, 64)
    out = T.empty(1024, 1024)
    return {
        "kernel: transposed copy 1024x1024": median_time(lambda: a.t().contiguous(), 15, 5),
        "kernel: copy_ of a transpose 1024x1024": median_time(lambda: out.copy_(a.t()), 15, 5),
        "kernel: NCHW to NHWC 16x64x56x56": median_time(
            lambda: x.permute(0, 2, 3, 1).contiguous(), 11, 2
        ),
        "kernel: heads to the front 8x128x8x64": median_time(
            lambda: y.permute(0, 2, 1, 3).contiguous(), 15, 10
        ),
    }


def orders(T: Any) -> dict[str, float]:
    """Running sums, and places by order."""
    a, b = T.randn(1_000_000), T.randn(1000, 1000)
    return {
        "kernel: cumsum of 1M": median_time(lambda: a.cumsum(0), 15, 2),
        "kernel: cumsum of 1000 rows of 1000": median_time(lambda: b.cumsum(1), 15, 2),
        "kernel: cumsum of 1000 columns of 1000": median_time(lambda: b.cumsum(0), 15, 2),
        "kernel: 10 largest of 1000, 1000 rows": median_time(lambda: b.topk(10), 11, 2),
        "kernel: sort of 1M": median_time(lambda: a.sort(), 5),
    }


def embedding_backward(T: Any) -> dict[str, float]:
    """The gradient of a table of 10,000 rows that 4096 places read."""
    index, g = T.randint(0, 10_000, (32, 128)), T.randn(32, 128, 128)
    table = T.randn(10_000, 128, requires_grad=True)

    def step() -> None:
        table.grad = None
        T.nn.functional.embedding(index, table).backward(g)

    return {"kernel: embedding 10000x128, 4096 places, with backward": median_time(step, 15, 3)}


# name: how (the function's name, sizes of input and weight, its arguments)
CONVOLUTIONS: dict[str, tuple[str, tuple, tuple, dict]] = {
    "3x3 8x64x56x56": ("conv2d", (8, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3 by twos 8x64x56x56": (
        "conv2d", (8, 64, 56, 56), (128, 64, 3, 3), {"padding": 1, "stride": 2}
    ),
    "5x5 8x32x28x28": ("conv2d", (8, 32, 28, 28), (32, 32, 5, 5), {"padding": 2}),
    "depthwise 3x3 8x128x56x56": (
        "conv2d", (8, 128, 56, 56), (128, 1, 3, 3), {"padding": 1, "groups": 128}
    ),
    "1-d, 3 taps 8x64x1024": ("conv1d", (8, 64, 1024), (64, 64, 3), {"padding": 1}),
    "3-d 2x16x16x16x16": ("conv3d", (2, 16, 16, 16, 16), (32, 16, 3, 3, 3), {"padding": 1}),
    "transposed 4x4 8x64x28x28": (
        "conv_transpose2d", (8, 64, 28, 28), (64, 32, 4, 4), {"padding": 1, "stride": 2}
    ),
}  # fmt: skip


def convolutions(T: Any) -> dict[str, float]:
    """Convolutions, and with their gradients in inputs and weights."""
    found = {}
    for name, case in CONVOLUTIONS.items():
        row = f"kernel: convolution {name}"
        found[row], found[f"{row}, with backward"] = _convolution(T, *case)
    return found


def _convolution(T: Any, name: str, size: tuple, kernel: tuple, how: dict) -> tuple[float, float]:
    run, x, w = getattr(T.nn.functional, name), T.randn(*size), T.randn(*kernel)
    g = T.randn(*run(x, w, **how).shape)
    leaves = x.clone().requires_grad_(), w.clone().requires_grad_()

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        run(*leaves, **how).backward(g)

    return median_time(lambda: run(x, w, **how), 9, 2), median_time(step, 9, 1)


def _pass(T: Any, net: Any) -> Callable[[], None]:
    x = T.randn(32, 16, 64)

    def step() -> None:
        for p in net.parameters():
            p.grad = None
        net(x)[0].sum().backward()

    return step


def recurrent(T: Any) -> dict[str, float]:
    """32 steps of 16 sequences, 64 features to 128, forward and backward."""
    return {
        f"kernel: {name} 32 steps, 16 x 64 to 128": median_time(
            _pass(T, getattr(T.nn, name)(64, 128)), 11, 2
        )
        for name in ("LSTM", "GRU", "RNN")
    }


def save(T: Any) -> dict[str, float]:
    """A file of 64 MB of floats."""
    state = {f"w{k}": T.randn(1024, 1024) for k in range(16)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        return {"kernel: save 64 MB": median_time(lambda: T.save(state, path), 7)}
