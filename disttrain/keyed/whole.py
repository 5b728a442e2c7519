"""Whole numbers, choices and orders, drawn with a key. Shapes and parameters are as in
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


def bernoulli(key: Tensor, p: Tensor, shape: Shape, fine: bool = False) -> Any:
    """True with probability ``p``; ``fine``: with twice as many bits, for tiny ones."""
    kind = p.meta()[1]
    if not fine:
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


def binomial(key: Tensor, n: Tensor, p: Tensor, shape: Shape) -> Any:
    """How many of ``n`` trials of chance ``p`` succeed, as numbers of the type of ``p``."""
    n, p = (t.broadcast_to(x, (*key.shape, *shape)) for x in (n.to(p.dtype), p))
    return threefry_binomial(key, n.detach(), p.detach(), partitionable=k.partitionable())


def multinomial(key: Tensor, n: Tensor, p: Tensor) -> Any:
    """Of ``n`` [...] trials, how many had each result of the chances ``p`` [..., results]."""
    left = t.flip(t.cumsum(t.flip(p, (-1,)), -1), (-1,))
    ratios = (p / t.where(left == 0, t.ones_like(left), left)).clamp(0, 1)
    new, counts = k.split(key, p.shape[-1]), []
    for i in range(p.shape[-1]):
        counts.append(binomial(new[..., i], n, ratios[..., i], tuple(p.shape[:-1])))
        n = n - counts[-1]
    return t.stack(counts, -1)


# --- orders and choices ---------------------------------------------------------------------------
def order(key: Tensor, shape: Shape, dim: int = 0) -> Any:
    """Indices along ``dim`` (int64) that shuffle each line of it for itself."""
    return prims.threefry_order(key, shape=tuple(shape), dim=dim, partitionable=k.partitionable())


def permutation(key: Tensor, x: Tensor, dim: int = 0, independent: bool = False) -> Any:
    """``x`` shuffled along ``dim``, all lines alike unless ``independent``."""
    if independent or x.ndim == 1:
        return t.take_along_dim(x, order(key, tuple(x.shape), dim), dim)
    return t.index_select(x, dim, order(key, (x.shape[dim],)))


def categorical(logits: Tensor, noise: Tensor, dim: int) -> Any:
    """The places along ``dim`` that Gumbel's ``noise`` makes the largest: samples of
    softmax(logits)."""
    return t.argmax(noise + logits, dim)


def largest(logits: Tensor, noise: Tensor, num: int) -> Any:
    """The first ``num`` samples without replacement along the last dimension (W. Kool, H. van Hoof
    and M. Welling, Stochastic beams and where to find them, 2019)."""
    return t.topk(noise + logits, num, -1)[1]


def weighted(key: Tensor, p: Tensor, shape: Shape) -> Any:
    """Places (int64) of the chances ``p`` [n], with replacement."""
    total = t.cumsum(p, 0)
    u = k.draw(key, shape, "unit", p.meta()[1])
    return t.searchsorted(total, total[-1] * (1 - u))


def _of(kind: Any) -> Any:
    return prims.dtypes.of(np.dtype(kind))
