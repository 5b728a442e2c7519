"""Convolutions, their adjoints, and windows as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import INT64, Ref, computed
from ..writer import Writer, rule
from .shapes import windows


def _steps(stride: tuple, dilation: tuple, padding: tuple) -> dict[str, Any]:
    return {"strides": list(stride), "dilations": list(dilation), "pads": [*padding, *padding]}


@rule("conv")
def _conv(
    w: Writer, x: Ref, weight: Ref, b: Ref | None = None, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> Ref:  # fmt: skip
    how = _steps(stride, dilation, padding)
    kernel = None if weight.shape is None else [int(n) for n in weight.shape[2:]]
    return w.node("Conv", x, weight, b, group=groups, kernel_shape=kernel, **how)


@rule("conv_input_grad")
def transposed(
    w: Writer, g: Ref, weight: Ref, b: Ref | None = None, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int, size: tuple,
) -> Ref:  # fmt: skip
    """``ConvTranspose``; what ``size`` has more than that gives is its ``output_padding``."""
    assert g.shape is not None and weight.shape is not None
    kernel = [int(n) for n in weight.shape[2:]]
    more = []
    steps = zip(g.shape[2:], size, kernel, stride, padding, dilation, strict=True)
    for n, want, k, s, p, d in steps:
        given = (w.hinted(n) - 1) * s - 2 * p + d * (k - 1) + 1
        more.append(w.hinted(want) - given)
    if min(more) < 0 or any(m >= s for m, s in zip(more, stride, strict=True)):
        return _wider(w, g, weight, b, more, stride, padding, dilation, groups)
    how = _steps(stride, dilation, padding)
    padded = more if any(more) else None
    return w.node("ConvTranspose", g, weight, b, group=groups, kernel_shape=kernel,
                  output_padding=padded, **how)  # fmt: skip


def _wider(
    w: Writer, g: Ref, weight: Ref, b: Ref | None, more: list[int], stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> Ref:  # fmt: skip
    """Where it does not: the pads behind are so much smaller, or zeros are put behind."""
    kernel = [int(n) for n in (weight.shape or ())[2:]]
    full = w.node("ConvTranspose", g, weight, group=groups, kernel_shape=kernel,
                  strides=list(stride), dilations=list(dilation))  # fmt: skip
    ends = [m - p for m, p in zip(more, padding, strict=True)]
    pads = [0, 0, *(-p for p in padding), 0, 0, *ends]
    out = w.node("Pad", full, w.constant(pads, INT64))
    if b is None:
        return out
    return w.node("Add", out, w.reshape(b, (-1, *(1,) * len(kernel))))


@rule("conv_weight_grad")
def _weight_grad(
    w: Writer, g: Ref, x: Ref, *, stride: tuple, padding: tuple, dilation: tuple, groups: int,
    kernel: tuple,
) -> Ref:  # fmt: skip
    """A convolution of the input by the gradient, samples being channels. Of groups: each alone."""
    if groups > 1:
        return _grouped(w, g, x, groups, stride=stride, padding=padding, dilation=dilation,
                        kernel=kernel)  # fmt: skip
    turned = [w.transpose(a, (1, 0, *range(2, a.rank))) for a in (x, g)]
    found = w.node("Conv", *turned, **_steps(dilation, stride, padding))
    n = len(kernel)
    cut = [[0] * n, list(kernel), list(range(2, 2 + n))]
    found = w.node("Slice", found, *(w.constant(c, INT64) for c in cut))
    return w.transpose(found, (1, 0, *range(2, 2 + n)))


def _grouped(w: Writer, g: Ref, x: Ref, groups: int, **how: Any) -> Ref:
    parts = []
    for a in (g, x):
        assert a.shape is not None
        sizes, rest = [int(a.shape[1]) // groups] * groups, a.shape[2:]
        found = w.node("Split", a, w.constant(sizes, INT64), outputs=groups, axis=1)
        parts.append([Ref(r.name, r.dtype, (a.shape[0], sizes[0], *rest)) for r in found])
    each = [_weight_grad(w, a, b, groups=1, **how) for a, b in zip(*parts, strict=True)]
    return w.node("Concat", *each, axis=0)


@rule("im2col")
def _unfold(
    w: Writer, x: Ref, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> Ref:
    """Each dimension by the places of its windows, kernel positions then brought together."""
    assert x.shape is not None
    n = len(kernel)
    if any(padding):
        x_pads = [0, 0, *padding, 0, 0, *padding]
        found = w.node("Pad", x, w.constant(x_pads, INT64))
    else:
        found = x
    for i, (size, k, s, p, d) in enumerate(
        zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    ):
        count = computed("+", computed("//", computed("+", size, 2 * p - d * (k - 1) - 1), s), 1)
        at = windows(w, count, s, np.arange(k) * d)
        found = w.node("Gather", found, at, axis=2 + 2 * i)
    dims = [0, 1, *range(3, 2 + 2 * n, 2), *range(2, 2 + 2 * n, 2)]
    turned = w.transpose(Ref(found.name, found.dtype), dims)
    return w.reshape(turned, w.outs[0].shape)


@rule("col2im")
def _fold(
    w: Writer, columns: Ref, size: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple,
) -> Ref:  # fmt: skip
    w.needs(18, "fold")
    return w.node("Col2Im", columns, w.ints(size), w.constant(list(kernel), INT64),
                  **_steps(stride, dilation, padding))  # fmt: skip
