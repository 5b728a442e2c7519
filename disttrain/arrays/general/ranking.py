"""Orders by several keys, the largest of many, and reductions of several arrays at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.tensor import Tensor
from ...ops import api as ops

Several = list[Tensor]


def sort(values: Sequence[Tensor], dim: int, keys: int = 1) -> list[Tensor]:
    """All ``values`` in the order along ``dim`` of the first ``keys`` of them, the first of which
    counts most; equal ones stay as they are. nan comes last."""
    if not values[0].ndim:
        return list(values)
    order: Tensor | None = None
    for key in reversed(values[:keys]):
        for part in _parts(key):
            row = part if order is None else ops.gather(part, dim, order)
            step = ops.argsort(row.detach(), dim=dim, stable=True)
            order = step if order is None else ops.gather(order, dim, step)
    assert order is not None
    return [ops.gather(v, dim, order) for v in values]


def _parts(key: Tensor) -> list[Tensor]:
    """What a key is ordered by, the least first: of complex numbers two parts."""
    kind = key.meta()[1].kind
    if kind == "c":
        return [ops.imag(key).clone(), ops.real(key).clone()]
    return [key.int() if kind == "b" else key]


def top_k(x: Tensor, k: int, dim: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest along ``dim``, the first of equal ones first, and their places. nan counts
    as the largest."""
    rank = x.detach()
    order = ops.argsort(rank, dim=dim, descending=True, stable=True)
    at = order[(slice(None),) * dim + (slice(0, k),)]
    return ops.gather(x, dim, at), at


def reduce_together(
    values: Several, starts: Several, combine: Callable[[Several, Several], Several],
    dims: Sequence[int],
) -> Several:  # fmt: skip
    """``combine`` of ``starts`` and of all elements along ``dims``, of several arrays together."""
    out = list(values)
    for d in sorted(dims, reverse=True):
        lead = (slice(None),) * d
        if not out[0].shape[d]:
            shape = (*out[0].shape[:d], *out[0].shape[d + 1 :])
            out = [s.expand(shape) for s in starts]
            continue
        while (n := out[0].shape[d]) > 1:
            half = n // 2
            both = [[v[(*lead, slice(at, at + half))] for v in out] for at in (0, half)]
            rest = [v[(*lead, slice(2 * half, None))] for v in out]
            out = combine(*both)
            if n % 2:
                out = [ops.cat([a, b], d) for a, b in zip(out, rest, strict=True)]
        out = [v.squeeze(d) for v in out]
    begin = [s.expand(v.shape) for s, v in zip(starts, out, strict=True)]
    return combine(begin, out)
