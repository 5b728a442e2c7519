"""Primitives that read and write at places given by integer tensors.

    gather(a, index; dim)          put_along(g, index; dim, shape)        adjoint of each other
    take(a, index; dim)            spread(g, index; dim, shape, skip)     adjoint of each other
    scatter(a, index, src; dim)    put(a, index, values; accumulate)

``skip`` names an index whose slices pass no gradient (the padding row of an embedding).
Indices are valid and not negative here; ``index`` sees to that and has the public functions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.fused import scatter as scatter_kernels
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.types.wide import is_half, through_float32, widened
from ..declare import primitive
from .batching import front, fronted, made_beside
from .elementwise import H, cast_like, eq, ne, where
from .views import permute, reshape

_SMALL_TABLE = 256  # rows up to which a product with one-hot columns is quick
_ONE_HOT_WORK = 20_000_000  # multiplications that such a product may take


# --- adding rows up by number ------------------------------------------------------------------
def add_rows(g: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """``out[index[i]] += g[i]`` for rows of ``g`` (n, d), as a new (size, d). In a fixed order.

    ``np.add.at`` is many times slower than the ways taken here; which is best depends on how many
    rows there are, how long they are, and how often they repeat (measured).
    """
    n, d = g.shape
    kind = g.dtype
    if is_half(kind):
        return add_rows(widened(g), index, size).astype(kind)
    if n == 0 or d == 0:
        return np.zeros((size, d), kind)
    if d == 1:
        return add_values(g[:, 0], index, size)[:, None]
    done = scatter_kernels.add_rows(g, index, size)
    if done is not None:
        return done
    if kind.kind == "f" and size <= _SMALL_TABLE and n * size * d <= _ONE_HOT_WORK:
        hot = np.zeros((size, n), kind)
        hot[index, np.arange(n)] = 1
        out = hot @ g
        if np.isfinite(out).all():  # what is not would get into all rows
            return out
    return _add_sorted(g, index, np.zeros((size, d), kind))


def _add_sorted(g: np.ndarray, index: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Bring equal numbers together, then add each run of them."""
    n, d = g.shape
    order = np.argsort(index, kind="stable")
    at = index[order]
    starts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
    if len(starts) == n:
        out[index] = g
    elif d >= 64 and n >= 4 * len(starts):
        rows = g[order]
        ends = [*starts[1:].tolist(), n]
        for a, b, row in zip(starts.tolist(), ends, at[starts].tolist(), strict=True):
            rows[a:b].sum(axis=0, out=out[row])
    elif d >= 256:
        for i, row in enumerate(index.tolist()):
            out[row] += g[i]
    else:
        out[at[starts]] = np.add.reduceat(g[order], starts, axis=0)
    return out


def add_values(g: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """``out[index[i]] += g[i]`` for numbers."""
    if is_half(g.dtype) or (g.dtype.kind == "f" and 4 * g.size >= size):
        weights = g.astype(np.float64, copy=False)
        return np.bincount(index, weights, minlength=size).astype(g.dtype, copy=False)
    out = np.zeros(size, g.dtype)
    np.add.at(out, index, g)
    return out


# --- whole slices by number --------------------------------------------------------------------
def _take_shape(a: Shaped, index: Shaped, dim: int, skip: int | None = None) -> tuple:
    return (*a.shape[:dim], *index.shape, *a.shape[dim + 1 :]), a.dtype


def _take_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    (a, index), dim, skip = args, params["dim"], params.get("skip")
    if dims[1] is None:
        return take(front(a, dims[0]), index, dim=dim + 1, skip=skip), 0
    index = front(index, dims[1])
    if dims[0] is None:
        return take(a, index, dim=dim, skip=skip), dim
    a = front(a, dims[0])
    shape = tuple(a.shape)
    n = shape[dim + 1]
    ahead = tuple(range(1, dim + 1))
    behind = tuple(range(dim + 2, len(shape)))
    rows = permute(a, dims=(0, dim + 1, *ahead, *behind))
    rows = reshape(rows, shape=(size * n, *(shape[i] for i in (*ahead, *behind))))
    out = take(rows, shifted(index, n, size), dim=0)
    k = len(index.shape)
    order = (0, *range(k, k + len(ahead)), *range(1, k), *range(k + len(ahead), len(out.shape)))
    return permute(out, dims=order), 0


def shifted(index: Any, n: int, size: int) -> Any:
    """Indices (size, ...) into rows of one table each, as indices into all tables in a row."""
    shape = (size, *(1,) * (len(index.shape) - 1))
    return index + made_beside(index, lambda xp: xp.arange(size).reshape(shape) * n)


take: Primitive = primitive(
    "take", lambda a, index, dim, skip=None: a.take(index, axis=dim), "a index",
    vjp={
        "a": lambda g, index, dim, skip, a_shape: spread(
            g, index, dim=dim, shape=tuple(a_shape), skip=skip
        )
    },
    jvp="multilinear", batch=_take_batch, shape=_take_shape,
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), np.array([2, 0, 2])), {"dim": 0}),
        ((rng.normal(size=(3, 4)), np.array([[1, 3], [1, 0]])), {"dim": 1}),
    ],
)  # fmt: skip


def _spread(g: Any, index: Any, dim: int, shape: tuple, skip: int | None = None) -> Any:
    k = index.ndim
    if dim:
        g = np.moveaxis(g, tuple(range(dim, dim + k)), tuple(range(k)))
    rest = g.shape[k:]
    rows = g.reshape(index.size, math.prod(rest))
    flat = index.reshape(-1)
    if skip is not None:
        keep = flat != skip
        if not keep.all():
            rows, flat = rows[keep], flat[keep]
    out = add_rows(rows, flat, shape[dim]).reshape(shape[dim], *rest)
    return np.ascontiguousarray(np.moveaxis(out, 0, dim)) if dim else out


def _kept(index: Any, skip: int, like: Value, dim: int) -> Any:
    """1 where an index is not ``skip``, shaped to multiply what was taken along ``dim``."""
    behind = len(like.shape) - dim - len(index.shape)
    return cast_like(reshape(ne(index, skip), shape=(*index.shape, *(1,) * behind)), like)


def _spread_rule(g: object, index: object, dim: int, skip: int | None) -> Any:
    out = take(g, index, dim=dim)
    return out if skip is None else out * _kept(index, skip, out, dim)


def _spread_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    (g, index), dim, shape = args, params["dim"], params["shape"]
    if dims[1] is None:
        more = {**params, "dim": dim + 1, "shape": (size, *shape)}
        return spread(front(g, dims[0]), index, **more), 0
    g, index = fronted(g, dims[0], size), front(index, dims[1])
    k = len(index.shape) - 1
    # Index dimensions first, the rest behind: rows of one table of size * n rows.
    order = (0, *range(dim + 1, dim + 1 + k), *range(1, dim + 1), *range(dim + 1 + k, len(g.shape)))
    g = permute(g, dims=order)
    if params.get("skip") is not None:
        g = g * _kept(index, params["skip"], g, 0)
    n = shape[dim]
    rest = (*shape[:dim], *shape[dim + 1 :])
    out = spread(g, shifted(index, n, size), dim=0, shape=(size * n, *rest))
    out = reshape(out, shape=(size, n, *rest))
    return permute(out, dims=(0, *range(2, dim + 2), 1, *range(dim + 2, len(shape) + 1))), 0


spread: Primitive = primitive(
    "spread", _spread, "g index", vjp={"g": _spread_rule}, jvp="multilinear", batch=_spread_batch,
    shape=lambda g, index, dim, shape, skip=None: (tuple(shape), g.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), np.array([2, 0, 2])), {"dim": 0, "shape": (5, 4)}),
        ((rng.normal(size=(2, 3)), np.array([1, 0, 1])), {"dim": 1, "shape": (2, 2), "skip": 0}),
    ],
)  # fmt: skip


# --- one element per place ---------------------------------------------------------------------
def _cut(a: RawArray | np.ndarray, index: RawArray | np.ndarray, dim: int) -> Any:
    """``a`` cut to the sizes of ``index`` in the dimensions other than ``dim``."""
    if all(i == dim or n == m for i, (n, m) in enumerate(zip(a.shape, index.shape, strict=True))):
        return a
    return a[tuple(slice(None) if i == dim else slice(n) for i, n in enumerate(index.shape))]


def _gather(a: np.ndarray, index: np.ndarray, dim: int) -> Any:
    a = _cut(a, index, dim)
    if dim == a.ndim - 1 and a.flags.c_contiguous and a.size:
        rows = a.size // a.shape[-1]
        first = np.arange(0, a.size, a.shape[-1]).reshape(*a.shape[:-1], 1)
        return a.reshape(-1).take(index + first if rows > 1 else index)
    return np.take_along_axis(a, index, dim)


def _along_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, index = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
    return gather(a, index, dim=params["dim"] + 1), 0


gather: Primitive = primitive(
    "gather", _gather, "a index",
    vjp={"a": lambda g, index, dim, a_shape: put_along(g, index, dim=dim, shape=tuple(a_shape))},
    jvp="multilinear", batch=_along_batch, shape=lambda a, index, dim: (index.shape, a.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), np.array([[0, 1, 1], [3, 3, 2]])), {"dim": 1}),
        ((rng.normal(size=(3, 4)), np.array([[0, 2, 1, 0], [1, 1, 2, 2]])), {"dim": 0}),
    ],
)  # fmt: skip


def _put_along(g: np.ndarray, index: np.ndarray, dim: int, shape: tuple) -> Any:
    if index.shape[dim] == 1:  # no place is written twice
        out = np.zeros(shape, g.dtype)
        np.put_along_axis(_cut(out, index, dim), index, g, dim)
        return out
    done = scatter_kernels.add_along(g, index, dim, shape)
    if done is not None:
        return done
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    at = index * steps[dim]
    for i, (n, step) in enumerate(zip(index.shape, steps, strict=True)):
        if i != dim:
            at = at + (np.arange(n) * step).reshape(-1, *(1,) * (len(shape) - 1 - i))
    return add_values(g.reshape(-1), at.reshape(-1), math.prod(shape)).reshape(shape)


def _put_along_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    g, index = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
    return put_along(g, index, dim=params["dim"] + 1, shape=(size, *params["shape"])), 0


put_along: Primitive = primitive(
    "put_along", _put_along, "g index", vjp={"g": lambda g, index, dim: gather(g, index, dim=dim)},
    jvp="multilinear", batch=_put_along_batch,
    shape=lambda g, index, dim, shape: (tuple(shape), g.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(2, 3)), np.array([[0, 1, 1], [3, 3, 2]])), {"dim": 1, "shape": (3, 4)})
    ],
)  # fmt: skip


def _scatter(
    a: np.ndarray, index: np.ndarray, src: float | np.generic | np.ndarray, dim: int
) -> Any:
    out = a.copy()
    np.put_along_axis(_cut(out, index, dim), index, src, dim)
    return out


def _scatter_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, index, src = args
    a, index = fronted(a, dims[0], size), fronted(index, dims[1], size)
    if hasattr(src, "shape"):
        src = fronted(src, dims[2], size)
    return scatter(a, index, src, dim=params["dim"] + 1), 0


scatter: Primitive = primitive(
    "scatter", _scatter, "a index src",
    vjp={
        "a": lambda g, index, dim: scatter(g, index, 0.0, dim=dim),
        "src": lambda g, index, dim: gather(g, index, dim=dim),
    },
    batch=_scatter_batch, shape=lambda a, index, src, dim: (a.shape, a.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), np.array([[0, 1], [3, 2]]), rng.normal(size=(2, 2))), {"dim": 1})
    ],
)  # fmt: skip


# --- other reductions of what falls on one place -----------------------------------------------
EXTREMES = {"amax": np.maximum, "amin": np.minimum}


def _neutral(reduce: str, kind: np.dtype) -> Any:
    """What changes nothing where it is combined."""
    if reduce == "prod":
        return 1
    if kind.kind == "b":
        return reduce == "amin"
    if kind.kind in "iu":
        return np.iinfo(kind).min if reduce == "amax" else np.iinfo(kind).max
    return -np.inf if reduce == "amax" else np.inf


@through_float32
def _scatter_reduce(
    a: np.ndarray, index: Any, src: np.ndarray, dim: int, reduce: str, include_self: bool
) -> Any:
    out = a.copy()
    at = list(np.indices(index.shape, sparse=True))
    at[dim] = index
    if not include_self:
        out[tuple(at)] = _neutral(reduce, out.dtype)
    EXTREMES.get(reduce, np.multiply).at(out, tuple(at), src)
    return out


def _scatter_reduce_rule(
    g: Value,
    a: Value,
    index: Value,
    src: Value,
    out: Value,
    dim: int,
    reduce: str,
    include_self: bool,
) -> tuple:
    shape = tuple(a.shape)
    if reduce == "prod":
        return _scatter_prod_rule(g, a, index, src, out, dim, include_self)
    here = cast_like(eq(a, out), g)
    if not include_self:
        here = scatter(here, index, 0.0, dim=dim)
    hits = cast_like(eq(src, gather(out, index, dim=dim)), g)
    equal = here + put_along(hits, index, dim=dim, shape=shape)
    share = g / where(eq(equal, 0), 1.0, equal)
    return share * here, None, gather(share, index, dim=dim) * hits


def _scatter_prod_rule(
    g: Value, a: Value, index: object, src: Value, out: object, dim: int, include_self: bool
) -> tuple:
    """The product of the others: by division where no factor is zero; where one is, that one's."""
    shape = tuple(a.shape)
    zero_a, zero_src = cast_like(eq(a, 0), g), cast_like(eq(src, 0), g)
    zero_at = zero_a if include_self else scatter(zero_a, index, 0.0, dim=dim)
    zeros = zero_at + put_along(zero_src, index, dim=dim, shape=shape)
    safe_a, safe_src = where(eq(a, 0), 1.0, a), where(eq(src, 0), 1.0, src)
    rest = scatter_reduce(
        safe_a, index, safe_src, dim=dim, reduce="prod", include_self=include_self
    )
    # One zero: only the zero itself has a gradient. More: nothing has.
    alone = cast_like(eq(zeros, 1), g)
    none = cast_like(eq(zeros, 0), g)
    da = g * H(rest / safe_a) * (none + alone * zero_at)
    if not include_self:
        da = scatter(g, index, 0.0, dim=dim)
    many = gather(g * none, index, dim=dim) * H(gather(rest, index, dim=dim) / safe_src)
    one = gather(g * alone, index, dim=dim) * H(gather(rest, index, dim=dim)) * zero_src
    return da, None, many * (1 - zero_src) + one


def _scatter_reduce_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, index, src = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
    return scatter_reduce(a, index, src, **{**params, "dim": params["dim"] + 1}), 0


def _reduce_samples(rng: np.random.Generator) -> list:
    a, src = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    index = np.array([[0, 1, 2, 0], [0, 2, 2, 1]])
    return [
        ((a, index, src), {"dim": 0, "reduce": how, "include_self": own})
        for how in ("amax", "amin", "prod")
        for own in (True, False)
    ]


scatter_reduce: Primitive = primitive(
    "scatter_reduce", _scatter_reduce, "a index src", vjp=_scatter_reduce_rule,
    batch=_scatter_reduce_batch, shape=lambda a, *rest, **params: (a.shape, a.dtype),
    samples=_reduce_samples,
)  # fmt: skip


# --- any places of the flattened array ---------------------------------------------------------
def _put(a: np.ndarray, index: np.ndarray, values: float | np.ndarray, accumulate: bool) -> Any:
    out = np.array(a, order="C", copy=True)
    flat = out.reshape(-1)
    if not accumulate:
        flat[index] = values
        return out
    values = np.broadcast_to(np.asarray(values, out.dtype), index.shape).reshape(-1)
    flat += add_values(values, index.reshape(-1), flat.size)
    return out


def _put_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, index, values = args
    a, index = fronted(a, dims[0], size), fronted(index, dims[1], size)
    if hasattr(values, "shape"):
        values = fronted(values, dims[2], size)
    numel = math.prod(tuple(a.shape)[1:])
    return put(a, shifted(index, numel, size), values, **params), 0


put: Primitive = primitive(
    "put", _put, "a index values",
    vjp={
        "a": lambda g, index, accumulate: g if accumulate else put(g, index, 0.0, accumulate=False),
        "values": lambda g, index: take(reshape(g, shape=(-1,)), index, dim=0),
    },
    batch=_put_batch, shape=lambda a, index, values, accumulate: (a.shape, a.dtype),
    samples=lambda rng: [
        (
            (rng.normal(size=(3, 4)), np.array([[0, 5], [7, 2]]), rng.normal(size=(2, 2))),
            {"accumulate": False},
        ),
        (
            (rng.normal(size=(3, 4)), np.array([3, 3, 11]), rng.normal(size=(3,))),
            {"accumulate": True},
        ),
    ],
)  # fmt: skip
