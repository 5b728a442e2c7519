"""Primitives that reduce along dimensions, and running sums. ``dims`` is a tuple of non-negative
dimension numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..declare import primitive
from .elementwise import H, cast_like, eq, exp
from .views import batched, cat, expand, flip, getitem, matrix_samples, reshape, up

_WIDE = {"b": np.dtype(np.int64), "i": np.dtype(np.int64), "u": np.dtype(np.int64)}


def reduced(shape: tuple, dims: tuple, keepdim: bool) -> tuple:
    """The shape after reducing ``dims``."""
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _spread(g: Any, shape: tuple, dims: tuple, keepdim: bool) -> Any:
    """Broadcast a reduced cotangent back over ``dims``."""
    if not keepdim:
        g = reshape(g, shape=reduced(shape, dims, True))
    return expand(g, shape=tuple(shape))


def _sum(a: Any, dims: tuple, keepdim: bool) -> Any:
    kind = a.dtype.kind
    if kind == "V" or (a.dtype.itemsize == 2 and kind == "f"):
        return a.sum(axis=dims, keepdims=keepdim, dtype=np.float32).astype(a.dtype)
    return np.add.reduce(a, axis=dims, dtype=_WIDE.get(kind), keepdims=keepdim)


def _sum_shape(a: Any, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), _WIDE.get(a.dtype.kind, a.dtype)


sum_ = primitive(
    "sum", _sum, "a",
    vjp={"a": lambda g, dims, keepdim, a_shape: _spread(g, a_shape, dims, keepdim)},
    jvp="linear", shape=_sum_shape, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: sum_, up("dims")),
)  # fmt: skip


def _count(shape: tuple, dims: tuple) -> int:
    return math.prod(shape[d] for d in dims)


def _mean(a: Any, dims: tuple, keepdim: bool) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        total = _sum(a, dims, keepdim)
        return (total / total.dtype.type(_count(a.shape, dims))).astype(a.dtype, copy=False)


mean = primitive(
    "mean", _mean, "a",
    vjp={
        "a": lambda g, dims, keepdim, a_shape: _spread(
            g * (1.0 / _count(a_shape, dims)), a_shape, dims, keepdim
        )
    },
    jvp="linear", shape=lambda a, dims, keepdim: (reduced(a.shape, dims, keepdim), a.dtype),
    samples=matrix_samples(dims=(0,), keepdim=True),
    batch=batched(lambda: mean, up("dims")),
)  # fmt: skip


def _extreme_rule(g: Any, a: Any, out: Any, dims: tuple, keepdim: bool) -> Any:
    """Equal shares to all elements that attain the extreme."""
    shape = tuple(a.shape)
    hit = cast_like(eq(a, _spread(out, shape, dims, keepdim)), g)
    return _spread(g, shape, dims, keepdim) * (hit / sum_(hit, dims=dims, keepdim=True))


def _same_type(a: Any, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), a.dtype


amax = primitive(
    "amax", lambda a, dims, keepdim: a.max(axis=dims, keepdims=keepdim), "a",
    vjp={"a": _extreme_rule}, shape=_same_type, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: amax, up("dims")),
)  # fmt: skip
amin = primitive(
    "amin", lambda a, dims, keepdim: a.min(axis=dims, keepdims=keepdim), "a",
    vjp={"a": _extreme_rule}, shape=_same_type, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: amin, up("dims")),
)  # fmt: skip


def _prod_rule(g: Any, a: Any, dim: int, keepdim: bool) -> Any:
    """The product of the others, by running products from both ends (right also for zeros)."""
    shape = tuple(a.shape)
    n = shape[dim]
    ahead = (slice(None),) * dim
    parts = [getitem(a, index=(*ahead, slice(i, i + 1))) for i in range(n)]
    left = [parts[0] * 0 + 1]
    right = [left[0]]
    for i in range(1, n):
        left.append(left[-1] * parts[i - 1])
        right.append(right[-1] * parts[n - i])
    others = [x * y for x, y in zip(left, reversed(right), strict=True)]
    return _spread(g, shape, (dim,), keepdim) * H(cat(*others, dim=dim, sizes=(1,) * n))


prod = primitive(
    "prod",
    lambda a, dim, keepdim: a.prod(axis=dim, keepdims=keepdim, dtype=_WIDE.get(a.dtype.kind)),
    "a",
    vjp={"a": _prod_rule},
    shape=lambda a, dim, keepdim: _sum_shape(a, (dim,), keepdim),
    samples=matrix_samples(dim=1, keepdim=False),
    batch=batched(lambda: prod, up("dim")),
)

cumsum = primitive(
    "cumsum", lambda a, dim: np.cumsum(a, dim, dtype=_WIDE.get(a.dtype.kind)), "a",
    vjp={"a": lambda g, dim: flip(cumsum(flip(g, dims=(dim,)), dim=dim), dims=(dim,))},
    jvp="linear", shape=lambda a, dim: (a.shape, _WIDE.get(a.dtype.kind, a.dtype)),
    samples=matrix_samples(dim=1),
    batch=batched(lambda: cumsum, up("dim")),
)  # fmt: skip


def _cumprod_rule(g: Any, a: Any, out: Any, dim: int) -> Any:
    if isinstance(a, np.ndarray) and a.all():
        total = flip(cumsum(flip(g * H(out), dims=(dim,)), dim=dim), dims=(dim,))
        return total / H(a)
    # Right for zeros too: what stands left of element k, times what g gets from k on without it.
    n = tuple(a.shape)[dim]
    ahead = (slice(None),) * dim
    at = [(*ahead, slice(i, i + 1)) for i in range(n)]
    rest: list = [None] * n
    for i in reversed(range(n)):
        rest[i] = getitem(g, index=at[i])
        if i + 1 < n:
            rest[i] = rest[i] + H(getitem(a, index=at[i + 1])) * rest[i + 1]
    left = [H(getitem(out, index=at[i])) for i in range(n - 1)]
    parts = [r if i == 0 else r * left[i - 1] for i, r in enumerate(rest)]
    return cat(*parts, dim=dim, sizes=(1,) * n) if n else g


cumprod = primitive(
    "cumprod", lambda a, dim: np.cumprod(a, dim, dtype=_WIDE.get(a.dtype.kind)), "a",
    vjp={"a": _cumprod_rule}, shape=lambda a, dim: (a.shape, _WIDE.get(a.dtype.kind, a.dtype)),
    samples=lambda rng: [
        ((rng.uniform(0.5, 2, (3, 4)),), {"dim": 1}),
        ((np.array([[1.5, 0.0, 2.0], [0.0, 3.0, 0.0]]),), {"dim": 1}),
    ],
    batch=batched(lambda: cumprod, up("dim")),
)  # fmt: skip


def _logsumexp(a: Any, dims: tuple, keepdim: bool) -> Any:
    top = a.max(axis=dims, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(a.dtype)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(a - top).sum(axis=dims, keepdims=True)) + top
    return total if keepdim else total.reshape(reduced(a.shape, dims, False))


def _logsumexp_rule(g: Any, a: Any, out: Any, dims: tuple, keepdim: bool) -> Any:
    shape = tuple(a.shape)
    return _spread(g, shape, dims, keepdim) * H(exp(a - _spread(out, shape, dims, keepdim)))


logsumexp = primitive(
    "logsumexp", _logsumexp, "a", vjp={"a": _logsumexp_rule}, shape=_same_type,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: logsumexp, up("dims")),
)  # fmt: skip


def _flag_shape(a: Any, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), np.dtype(bool)


any_ = primitive(
    "any", lambda a, dims, keepdim: a.any(axis=dims, keepdims=keepdim), "a", shape=_flag_shape,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: any_, up("dims")),
)  # fmt: skip
all_ = primitive(
    "all", lambda a, dims, keepdim: a.all(axis=dims, keepdims=keepdim), "a", shape=_flag_shape,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=batched(lambda: all_, up("dims")),
)  # fmt: skip


def _arg_shape(a: Any, dim: int, keepdim: bool) -> tuple:
    return reduced(a.shape, (dim,), keepdim), np.dtype(np.int64)


argmax = primitive(
    "argmax", lambda a, dim, keepdim: a.argmax(dim, keepdims=keepdim), "a", shape=_arg_shape,
    samples=matrix_samples(dim=1, keepdim=False),
    batch=batched(lambda: argmax, up("dim")),
)  # fmt: skip
argmin = primitive(
    "argmin", lambda a, dim, keepdim: a.argmin(dim, keepdims=keepdim), "a", shape=_arg_shape,
    samples=matrix_samples(dim=1, keepdim=False),
    batch=batched(lambda: argmin, up("dim")),
)  # fmt: skip
