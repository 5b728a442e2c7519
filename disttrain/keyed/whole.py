"""Whole numbers, drawn with a key. Shapes and parameters are as in
``continuous``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops import api as t
from ..ops.primitives import threefry as prims
from ..ops.primitives.rejection import threefry_binomial, threefry_poisson
from . import keys as k

Shape = tuple[int, ...]


def bits(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Integers of an unsigned type, all equally likely."""
    return k.draw(key, shape, "bits", dtype)


def integers(key: Tensor, shape: Shape, low: Tensor, high: Tensor, dtype: np.dtype) -> Any:
    """Integers in [low, high) (``low`` where that is empty), of any integer type but sampled in 32
    bits at least."""
    dtype, lead = np.dtype(dtype), tuple(key.shape)
    low, high = (t.broadcast_to(x, (*lead, *shape)) for x in (low, high))
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
    out = prims.threefry_integers(key, low, high, dtype=wide, partitionable=k.partitionable())
    return out if wide == dtype else out.to(_of(dtype))


def bernoulli(
    key: Tensor, p: Tensor, shape: Shape, dtype: np.dtype | None = None, mode: str | None = None
) -> Any:
    """True with probability ``p``; ``mode="high"``: with twice as many bits, for tiny ones."""
    kind = p.meta()[1]
    if not k.is_high(mode):
        return k.draw(key, shape, "unit", kind) < p
    both = k.draw(key, (2, *shape), "unit", kind)
    lead = both.ndim - len(shape) - 1
    rest = both.select(lead, 1) * 2.0 ** -prims.mantissa(kind)
    return rest < p - both.select(lead, 0)


def rademacher(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """-1 or 1."""
    half = t.tensor(np.asarray(0.5, np.float32))
    return 2 * bernoulli(key, half, shape).to(_of(dtype)) - 1


def geometric(key: Tensor, p: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """How many trials of chance ``p`` until one succeeds."""
    u = k.draw(key, shape, "unit", p.meta()[1])
    u = t.where(u == 0, t.ones_like(u), u)
    return (t.floor(t.log(u) / t.log1p(-p)) + 1).to(_of(dtype))


def poisson(key: Tensor, rate: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Poisson's."""
    rate = t.broadcast_to(rate, (*key.shape, *shape)).to(_of(np.dtype(np.float32)))
    return threefry_poisson(
        key, rate.detach(), dtype=np.dtype(dtype), partitionable=k.partitionable()
    )


def binomial(key: Tensor, n: Tensor, p: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """How many of ``n`` trials of chance ``p`` succeed."""
    n, p = (t.broadcast_to(x, (*key.shape, *shape)) for x in (n.to(p.dtype), p))
    out = threefry_binomial(key, n.detach(), p.detach(), partitionable=k.partitionable())
    return out.to(_of(dtype))


def multinomial(key: Tensor, n: Tensor, p: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Of ``n`` [...] trials, how many had each result of the chances ``p`` [..., results]."""
    p, kind = t.broadcast_to(p, shape), p.meta()[1]
    n = t.broadcast_to(n.to(p.dtype), shape[:-1])
    left = t.flip(t.cumsum(t.flip(p, (-1,)), -1), (-1,))
    ratios = (p / t.where(left == 0, t.ones_like(left), left)).clamp(0, 1)
    new, counts = k.split(key, shape[-1]), []
    for i in range(shape[-1]):
        counts.append(binomial(new[..., i], n, ratios[..., i], shape[:-1], kind))
        n = n - counts[-1]
    return t.stack(counts, -1).to(_of(dtype))


def _of(kind: Any) -> Any:
    return prims.dtypes.of(np.dtype(kind))
