"""Primitives that reduce along dimensions, and running sums. ``dims`` is a tuple of non-negative
dimension numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import running as kernels
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.types.wide import accumulator, add_up, count, running, through_float32, total
from ..declare import primitive
from .elementwise import H, cast_like, eq, exp, logical_and, logical_or, ne
from .views import Batched, cat, expand, flip, getitem, matrix_samples, reshape, up


def reduced(shape: tuple, dims: tuple, keepdim: bool) -> tuple:
    """The shape after reducing ``dims``."""
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _spread(g: Any, shape: tuple, dims: tuple, keepdim: bool) -> Any:
    """Broadcast a reduced cotangent back over ``dims``."""
    if g.__class__ is np.ndarray:
        if not keepdim and len(dims) != len(shape):
            g = g.reshape(reduced(shape, dims, True))
        return expand.forward(g, shape)
    if not keepdim:
        g = reshape(g, shape=reduced(shape, dims, True))
    return expand(g, shape=tuple(shape))


def _summed(kind: np.dtype) -> np.dtype:
    """The type of sums and products: integers grow to int64, the rest stays."""
    return accumulator(kind) if kind.kind in "biu" else kind


def _sum_shape(a: Shaped, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), _summed(a.dtype)


sum_: Primitive = primitive(
    "sum", total, "a",
    vjp={"a": lambda g, dims, keepdim, a_shape: _spread(g, a_shape, dims, keepdim)},
    jvp="linear", shape=_sum_shape, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: sum_, up("dims")),
)  # fmt: skip


def _mean(a: np.ndarray, dims: tuple, keepdim: bool) -> Any:
    kind, n = a.dtype, count(a.shape, dims)
    out = add_up(a, dims, keepdim) / n  # numpy's numbers give 0 / 0 as nan: the mean of nothing
    return out if out.dtype is kind else out.astype(kind)


def _mean_rule(g: Value, dims: tuple, keepdim: bool, a_shape: tuple) -> Any:
    n = count(a_shape, dims)
    return _spread(g * (1.0 / n if n else math.nan), a_shape, dims, keepdim)


mean: Primitive = primitive(
    "mean", _mean, "a",
    vjp={"a": _mean_rule},
    jvp="linear", shape=lambda a, dims, keepdim: (reduced(a.shape, dims, keepdim), a.dtype),
    samples=matrix_samples(dims=(0,), keepdim=True),
    batch=Batched(lambda: mean, up("dims")),
)  # fmt: skip


def _extreme_rule(g: Value, a: Value, out: Value, dims: tuple, keepdim: bool) -> Any:
    """Equal shares to all elements that attain the extreme; to those that are nan, where it is."""
    shape = tuple(a.shape)
    top = _spread(out, shape, dims, keepdim)
    hit = eq(a, top)
    if out.__class__ is not np.ndarray or np.isnan(out).any():
        hit = logical_or(hit, logical_and(ne(a, a), ne(top, top)))
    hit = cast_like(hit, g)
    return _spread(g, shape, dims, keepdim) * (hit / sum_(hit, dims=dims, keepdim=True))


def _same_type(a: Value, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), a.dtype


amax: Primitive = primitive(
    "amax", lambda a, dims, keepdim: np.maximum.reduce(a, dims, keepdims=keepdim), "a",
    vjp={"a": _extreme_rule}, shape=_same_type, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: amax, up("dims")),
)  # fmt: skip
amin: Primitive = primitive(
    "amin", lambda a, dims, keepdim: np.minimum.reduce(a, dims, keepdims=keepdim), "a",
    vjp={"a": _extreme_rule}, shape=_same_type, samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: amin, up("dims")),
)  # fmt: skip


def _prod_rule(g: object, a: Any, out: object, dim: int, keepdim: bool) -> Any:
    """The product of the others, by running products from both ends (right also for zeros)."""
    shape = tuple(a.shape)
    n = shape[dim]
    if isinstance(a, np.ndarray) and a.all():
        return _spread(g * H(out), shape, (dim,), keepdim) / H(a)
    if n == 0:
        return a * 0
    ahead = (slice(None),) * dim
    parts = [getitem(a, index=(*ahead, slice(i, i + 1))) for i in range(n)]
    left = [parts[0] * 0 + 1]
    right = [left[0]]
    for i in range(1, n):
        left.append(left[-1] * parts[i - 1])
        right.append(right[-1] * parts[n - i])
    others = [x * y for x, y in zip(left, reversed(right), strict=True)]
    return _spread(g, shape, (dim,), keepdim) * H(cat(*others, dim=dim, sizes=(1,) * n))


prod: Primitive = primitive(
    "prod",
    through_float32(
        lambda a, dim, keepdim: np.multiply.reduce(
            a, axis=dim, keepdims=keepdim, dtype=accumulator(a.dtype)
        )
    ),
    "a",
    vjp={"a": _prod_rule},
    shape=lambda a, dim, keepdim: _sum_shape(a, (dim,), keepdim),
    samples=matrix_samples(dim=1, keepdim=False),
    batch=Batched(lambda: prod, up("dim")),
)


def _running(ufunc: Any) -> Any:
    """Running sums or products, rounded once per element."""

    def forward(a: Any, dim: int) -> Any:
        if a.ndim == 0:
            return np.array(a, _summed(a.dtype))
        done = kernels.accumulate(ufunc, a, dim)
        if done is not None:
            return done
        out = ufunc.accumulate(a, dim, dtype=running(a.dtype))
        return out.astype(_summed(a.dtype), copy=False)

    return forward


def _running_shape(a: Shaped, dim: int) -> tuple:
    return a.shape, _summed(a.dtype)


def _running_batch(prim: Callable[..., Any]) -> Any:
    """A 0-d value has no dimension to run along: nor has it under vmap."""
    many = Batched(prim, up("dim"))

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        if len(args[0].shape) == 1:
            return args[0] * 1, dims[0]
        return many(args, dims, params, size)

    return rule


def _cumsum_rule(g: Value, dim: int) -> Any:
    if not len(g.shape):
        return g
    return _from_the_end(g, dim)


def _from_the_end(g: Value, dim: int) -> Any:
    """Running sums, the last element first."""
    done = kernels.accumulate(np.add, g, dim, backwards=True)
    return flip(cumsum(flip(g, dims=(dim,)), dim=dim), dims=(dim,)) if done is None else done


cumsum: Primitive = primitive(
    "cumsum", _running(np.add), "a", vjp={"a": _cumsum_rule},
    jvp="linear", shape=_running_shape, samples=matrix_samples(dim=1),
    batch=_running_batch(lambda: cumsum),
)  # fmt: skip


def _cumprod_rule(g: Any, a: Value, out: object, dim: int) -> Any:
    if not len(g.shape):
        return g
    if isinstance(a, np.ndarray) and a.all():
        return _from_the_end(g * H(out), dim) / H(a)
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


cumprod: Primitive = primitive(
    "cumprod", _running(np.multiply), "a", vjp={"a": _cumprod_rule}, shape=_running_shape,
    samples=lambda rng: [
        ((rng.uniform(0.5, 2, (3, 4)),), {"dim": 1}),
        ((np.array([[1.5, 0.0, 2.0], [0.0, 3.0, 0.0]]),), {"dim": 1}),
    ],
    batch=_running_batch(lambda: cumprod),
)  # fmt: skip


@through_float32
def _logsumexp(a: np.ndarray, dims: tuple, keepdim: bool) -> Any:
    top = (a.real if a.dtype.kind == "c" else a).max(axis=dims, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(a.dtype)
    with np.errstate(divide="ignore"):
        out = np.log(add_up(np.exp(a - top), dims, True)) + top
    return out if keepdim else out.reshape(reduced(a.shape, dims, False))


def _logsumexp_rule(g: object, a: Any, out: object, dims: tuple, keepdim: bool) -> Any:
    shape = tuple(a.shape)
    return _spread(g, shape, dims, keepdim) * H(exp(a - _spread(out, shape, dims, keepdim)))


logsumexp: Primitive = primitive(
    "logsumexp", _logsumexp, "a", vjp={"a": _logsumexp_rule}, shape=_same_type,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: logsumexp, up("dims")),
)  # fmt: skip


def _flag_shape(a: Shaped, dims: tuple, keepdim: bool) -> tuple:
    return reduced(a.shape, dims, keepdim), np.dtype(bool)


any_: Primitive = primitive(
    "any", lambda a, dims, keepdim: a.any(axis=dims, keepdims=keepdim), "a", shape=_flag_shape,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: any_, up("dims")),
)  # fmt: skip
all_: Primitive = primitive(
    "all", lambda a, dims, keepdim: a.all(axis=dims, keepdims=keepdim), "a", shape=_flag_shape,
    samples=matrix_samples(dims=(1,), keepdim=False),
    batch=Batched(lambda: all_, up("dims")),
)  # fmt: skip


def _arg_shape(a: Shaped, dim: int, keepdim: bool) -> tuple:
    return reduced(a.shape, (dim,), keepdim), np.dtype(np.int64)


argmax: Primitive = primitive(
    "argmax", lambda a, dim, keepdim: a.argmax(dim, keepdims=keepdim), "a", shape=_arg_shape,
    samples=matrix_samples(dim=1, keepdim=False),
    batch=Batched(lambda: argmax, up("dim")),
)  # fmt: skip
argmin: Primitive = primitive(
    "argmin", lambda a, dim, keepdim: a.argmin(dim, keepdims=keepdim), "a", shape=_arg_shape,
    samples=matrix_samples(dim=1, keepdim=False),
    batch=Batched(lambda: argmin, up("dim")),
)  # fmt: skip
