"""Reductions over windows, by any associative and commutative function, one dimension after the
other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.tensor import Tensor
from ...ops import api as ops
from .margins import pad

Combine = Callable[[Tensor, Tensor], Tensor]


def reduce_window(
    x: Tensor, init: Tensor, combine: Combine, sizes: Sequence[int], strides: Sequence[int],
    padding: Sequence[tuple[int, int]], base_dilation: Sequence[int], dilation: Sequence[int],
) -> Tensor:  # fmt: skip
    """``combine`` of ``init`` and of all elements of each window."""
    out = pad(
        x, init, [(lo, hi, b - 1) for (lo, hi), b in zip(padding, base_dilation, strict=True)]
    )
    for d, (size, stride, gap) in enumerate(zip(sizes, strides, dilation, strict=True)):
        if size > 1 or stride > 1:
            out = _along(out, combine, d, size, stride, gap)
    return combine(init.expand(out.shape), out)


def _along(x: Tensor, combine: Combine, d: int, size: int, stride: int, gap: int) -> Tensor:
    count = max((x.shape[d] - (size - 1) * gap - 1) // stride + 1, 0)
    lead = (slice(None),) * d

    def part(k: int) -> Tensor:
        return x[
            (*lead, slice(k * gap, k * gap + max(count - 1, 0) * stride + (count > 0), stride))
        ]

    parts = [part(k) for k in range(size)]
    while len(parts) > 1:  # in pairs: as many digits are lost as there are halvings
        pairs = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(parts) & ~1 :]
    return parts[0]


def reduce(x: Tensor, init: Tensor, combine: Combine, dims: Sequence[int]) -> Tensor:
    """``combine`` of ``init`` and of all elements along ``dims``, which disappear."""
    for d in sorted(dims, reverse=True):
        while x.shape[d] > 1:
            n, lead = x.shape[d], (slice(None),) * d
            half = n // 2
            y = combine(x[(*lead, slice(0, half))], x[(*lead, slice(half, 2 * half))])
            x = y if n % 2 == 0 else _joined(y, x[(*lead, slice(2 * half, None))], d, combine)
        x = x.squeeze(d) if x.shape[d] else _empty(x, d, init)
    return combine(init.expand(x.shape), x)


def _joined(y: Tensor, rest: Tensor, d: int, combine: Combine) -> Tensor:
    lead = (slice(None),) * d
    first = combine(y[(*lead, slice(0, 1))], rest)
    return first if y.shape[d] == 1 else ops.cat([first, y[(*lead, slice(1, None))]], d)


def _empty(x: Tensor, d: int, init: Tensor) -> Tensor:
    shape = (*x.shape[:d], *x.shape[d + 1 :])
    return init.expand(shape)
