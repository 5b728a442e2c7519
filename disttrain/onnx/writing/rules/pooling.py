"""The largest and the mean of windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..types import INT64, Ref, Unmapped, computed, same_shape, static
from ..writer import Writer, rule


def _windows(kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool) -> dict[str, Any]:
    if not static((*kernel, *stride, *padding)):
        raise Unmapped("windows whose size depends on the input")
    return {
        "kernel_shape": list(kernel), "strides": list(stride), "pads": [*padding, *padding],
        "ceil_mode": int(ceil_mode),
    }  # fmt: skip


def _is_whole(a: Ref, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool) -> bool:
    """Whether one window, of a size that may change, has all elements of a plane."""
    whole = a.shape is not None and same_shape(kernel, a.shape[2:]) and not static(kernel)
    return whole and not any(padding)


@rule("max_pool")
def _max_pool(w: Writer, a: Ref, dilation: tuple, **how: Any) -> Ref:
    if _is_whole(a, **how):
        return w.reduce("ReduceMax", a, range(2, a.rank), True)
    return w.node("MaxPool", a, dilations=list(dilation), **_windows(**how))


@rule("max_pool_indices")
def _max_pool_indices(w: Writer, a: Ref, best: Ref, dilation: tuple, **how: Any) -> Ref:
    """ONNX counts places from the first element of all, we from that of the plane."""
    made = w.node("MaxPool", a, outputs=2, dilations=list(dilation), **_windows(**how))
    places = Ref(made[1].name, INT64)
    assert a.shape is not None
    plane = computed("*", *a.shape[2:])
    return w.node("Mod", places, w.size(plane))


@rule("avg_pool")
def _avg_pool(
    w: Writer, a: Ref, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, include: bool,
    divisor: Any,
) -> Ref:  # fmt: skip
    if a.dtype.kind in "iu":
        raise Unmapped("means of integers in windows")
    if divisor is None and _is_whole(a, kernel, stride, padding, ceil_mode):
        return w.reduce("ReduceMean", a, range(2, a.rank), True)
    how = _windows(kernel, stride, padding, ceil_mode)
    if divisor is None:
        return w.node("AveragePool", a, count_include_pad=int(include), **how)
    if ceil_mode:
        raise Unmapped("avg_pool with ceil_mode and divisor_override")
    mean = w.node("AveragePool", a, count_include_pad=1, **how)
    return w.node("Mul", mean, w.constant(math.prod(kernel) / divisor, a.dtype))


def is_repetition(kernel: tuple, stride: tuple, padding: tuple, divisor: Any) -> bool:
    """Whether what spreads means writes each number to places of its own: an enlarged image."""
    return divisor == 1 and kernel == stride and not any(padding)


@rule("avg_pool_spread")
def _avg_pool_spread(
    w: Writer, g: Ref, size: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
    include: bool, divisor: Any,
) -> Ref:  # fmt: skip
    if is_repetition(kernel, stride, padding, divisor):
        scales = w.constant(np.array([1, 1, *kernel], np.float32))
        return w.node("Resize", g, None, scales, mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric")  # fmt: skip
    if not static(g.shape) or not static(size):
        raise Unmapped("the adjoint of avg_pool, of sizes that depend on the input")
    shape = [int(n) for n in g.shape or ()]
    scale = _scales(size, tuple(shape[2:]), kernel, stride, padding, include, divisor)
    ones = w.constant(np.ones((shape[1], 1, *kernel), g.dtype))
    full = w.node("ConvTranspose", w.node("Mul", g, w.constant(scale.astype(g.dtype))), ones,
                  group=shape[1], strides=list(stride))  # fmt: skip
    have = [(m - 1) * s + k for m, s, k in zip(shape[2:], stride, kernel, strict=True)]
    ends = [n + p - h for n, p, h in zip(size, padding, have, strict=True)]
    return w.node("Pad", full, w.constant([0, 0, *(-p for p in padding), 0, 0, *ends], INT64))


def _scales(
    size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple, include: bool,
    divisor: Any,
) -> np.ndarray:  # fmt: skip
    """By what each window's gradient is multiplied."""
    if divisor is not None:
        return np.asarray(1.0 / divisor)
    total = np.ones(())
    for n, m, k, s, p in zip(size, out, kernel, stride, padding, strict=True):
        first = np.arange(m) * s - p
        low, high = (first, n + p) if include else (np.maximum(first, 0), n)
        total = total[..., None] * (np.minimum(first + k, high) - low)
    return 1.0 / total
