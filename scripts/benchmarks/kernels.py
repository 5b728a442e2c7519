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
    "1x1 8x64x28x28": ("conv2d", (8, 64, 28, 28), (128, 64, 1, 1), {}),
    "dilated 3x3 8x64x28x28": (
        "conv2d", (8, 64, 28, 28), (64, 64, 3, 3), {"padding": 2, "dilation": 2}
    ),
    "3x3 in 4 groups 8x64x28x28": (
        "conv2d", (8, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4}
    ),
    "7x7 by twos of images 8x3x112x112": (
        "conv2d", (8, 3, 112, 112), (64, 3, 7, 7), {"padding": 3, "stride": 2}
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


def recurrent_forward(T: Any) -> dict[str, float]:
    """50 steps of 64 features to 128, without gradients; and what else an LSTM may be."""
    nets = {
        **{
            f"{name} 50 steps, 16 x 64 to 128": (getattr(T.nn, name)(64, 128), 16)
            for name in ("LSTM", "GRU", "RNN")
        },
        "LSTM 50 steps, 1 x 64 to 128": (T.nn.LSTM(64, 128), 1),
        "LSTM 50 steps, 16 x 64 to 128 to 32": (T.nn.LSTM(64, 128, proj_size=32), 16),
        "LSTM 50 steps, 16 x 64 to 64 twice, both ways": (
            T.nn.LSTM(64, 64, num_layers=2, bidirectional=True), 16
        ),
    }  # fmt: skip
    found = {}
    for name, (net, count) in nets.items():
        x = T.randn(50, count, 64)

        def step(net: Any = net, x: Any = x) -> None:
            with T.no_grad():
                net(x)

        found[f"kernel: {name}, forward"] = median_time(step, 15, 3)
    return found


def _both(T: Any, run: Callable, *given: Any) -> Callable[[], None]:
    """A call and the gradients of what it is given."""
    leaves = [a.clone().requires_grad_() for a in given]
    g = T.randn(*run(*leaves).shape)

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        run(*leaves).backward(g)

    return step


def pools(T: Any) -> dict[str, float]:
    """Pooling and its gradients."""
    F, x = T.nn.functional, T.randn(8, 64, 56, 56)
    rows = {
        "max pooling 2x2 8x64x56x56": lambda a: F.max_pool2d(a, 2),
        "max pooling 3x3 by twos 8x64x56x56": lambda a: F.max_pool2d(a, 3, 2, 1),
        "mean pooling 2x2 8x64x56x56": lambda a: F.avg_pool2d(a, 2),
        "mean pooling 3x3 by twos 8x64x56x56": lambda a: F.avg_pool2d(a, 3, 2, 1),
        "adaptive mean pooling to 7x7 8x64x56x56": lambda a: F.adaptive_avg_pool2d(a, 7),
    }
    return {
        f"kernel: {name}, with backward": median_time(_both(T, run, x), 11, 2)
        for name, run in rows.items()
    }


def norms(T: Any) -> dict[str, float]:
    """Normalizations of images and their gradients."""
    F, x = T.nn.functional, T.randn(8, 64, 28, 28)
    few = T.randn(64, 64, 4, 4)
    w, b, rows, v, u = T.randn(64), T.randn(64), T.randn(1024, 512), T.randn(512), T.randn(512)
    steps = {
        "group norm, 8 groups 8x64x28x28": _both(
            T, lambda a, w, b: F.group_norm(a, 8, w, b), x, w, b
        ),
        "group norm, 8 groups 64x64x4x4": _both(
            T, lambda a, w, b: F.group_norm(a, 8, w, b), few, w, b
        ),
        "instance norm 8x64x28x28": _both(
            T, lambda a, w, b: F.instance_norm(a, weight=w, bias=b), x, w, b
        ),
        "batch norm 8x64x28x28": _both(
            T, lambda a, w, b: F.batch_norm(a, None, None, w, b, True), x, w, b
        ),
        "layer norm 1024x512": _both(
            T, lambda a, w, b: F.layer_norm(a, (512,), w, b), rows, v, u
        ),
    }  # fmt: skip
    return {f"kernel: {n}, with backward": median_time(s, 11, 3) for n, s in steps.items()}


def attention(T: Any) -> dict[str, float]:
    """Attention of 8 heads over 128 places of 64 features, with gradients."""
    attend = T.nn.functional.scaled_dot_product_attention
    given = [T.randn(4, 8, 128, 64) for _ in range(3)]
    mask = T.rand(4, 1, 128, 128) < 0.8
    rows = {
        "attention": lambda q, k, v: attend(q, k, v),
        "causal attention": lambda q, k, v: attend(q, k, v, is_causal=True),
        "masked attention": lambda q, k, v: attend(q, k, v, mask),
        "masked attention with dropout": lambda q, k, v: attend(q, k, v, mask, 0.1),
    }
    return {
        f"kernel: {name} 4x8x128x64, with backward": median_time(_both(T, run, *given), 9, 2)
        for name, run in rows.items()
    }


def interpolation(T: Any) -> dict[str, float]:
    """Images made larger and smaller, and the gradients."""
    resize, x = T.nn.functional.interpolate, T.randn(8, 32, 28, 28)
    large = T.randn(8, 32, 56, 56)
    half = _both(T, lambda a: resize(a, scale_factor=0.5), large)
    return {
        "kernel: nearest interpolation 8x32x56x56 to 28x28, with backward": median_time(half, 9, 2),
        **{
            f"kernel: {mode} interpolation 8x32x28x28 to 56x56, with backward": median_time(
                _both(T, lambda a, mode=mode: resize(a, scale_factor=2, mode=mode), x), 9, 2
            )
            for mode in ("nearest", "bilinear", "bicubic")
        },
    }


def products(T: Any) -> dict[str, float]:
    """Products of few rows, and of half types (beside their own float32)."""
    w, found = T.randn(1024, 1024), {}
    for rows in (1, 4, 8, 16):
        x = T.randn(rows, 1024)
        name = f"kernel: product of {rows} rows, 1024x1024"
        found[name] = median_time(lambda x=x: x @ w, 15, 20)
        found[f"{name} transposed"] = median_time(lambda x=x: x @ w.t(), 15, 20)
    a, b = T.randn(256, 512), T.randn(512, 512)
    for kind in (T.float32, T.bfloat16, T.float16):
        left, right = a.to(kind), b.to(kind)
        name = str(kind).split(".")[-1]
        found[f"kernel: product 256x512x512, {name}"] = median_time(
            lambda left=left, right=right: left @ right, 15, 5
        )
    return found


def save(T: Any) -> dict[str, float]:
    """A file of 64 MB of floats."""
    state = {f"w{k}": T.randn(1024, 1024) for k in range(16)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        return {"kernel: save 64 MB": median_time(lambda: T.save(state, path), 7)}
