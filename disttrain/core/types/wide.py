"""Which type arithmetic is done in where the type of the data is too narrow for it.

Half types (float16, bfloat16, float8) hold few digits and small numbers: whatever adds up or
passes through intermediate results is computed in float32 and rounded once. This is the only
place that says so. On arrays; the form for Tensors is ``functions.args.in_float32``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...backends.fused import sums as last_sums
from ...backends.fused.casts import SHORT as FEW
from ...backends.fused.casts import scaled

_F32 = np.dtype(np.float32)
_EIGHT_BITS: dict[np.dtype, Callable] = {
    np.dtype(ml_dtypes.float8_e4m3fn): lambda a: np.clip(a, -448.0, 448.0),
    np.dtype(ml_dtypes.float8_e8m0fnu): np.abs,
}
_INT64 = np.dtype(np.int64)
_RUNNING = {np.dtype("f4"): np.dtype("f8"), np.dtype("c8"): np.dtype("c16")}
SHORT = 2048  # elements up to which sums need no blocks
FEWEST = last_sums.SHORT  # and up to which those of the last dimension are numpy's
BLOCK = 32  # numbers added one after the other before their sum joins the others


def is_half(kind: np.dtype) -> bool:
    """Whether ``kind`` is float16, bfloat16 or narrower."""
    return kind.itemsize <= 2 and kind.kind in "fV"


def accumulator(kind: np.dtype) -> np.dtype:
    """The type that sums and products of ``kind`` are kept in."""
    if kind.kind in "biu":
        return _INT64
    return _F32 if is_half(kind) else kind


def running(kind: np.dtype) -> np.dtype:
    """The type that running sums are kept in: their errors add up, so one step wider."""
    return _RUNNING.get(kind) or accumulator(kind)


def within(a: Any, kind: np.dtype) -> Any:
    """``a`` as ``kind`` can hold it: of float8_e4m3fn, which has no infinity, the largest number
    stands for what is larger; float8_e8m0fnu has no sign."""
    if kind.itemsize != 1 or kind not in _EIGHT_BITS or np.asarray(a).dtype == kind:
        return a
    return _EIGHT_BITS[kind](np.asarray(a).astype(_F32))


def cast(a: np.ndarray, kind: np.dtype) -> np.ndarray:
    """``a`` in a half type or from one, in memory of its own, its axes in the same order."""
    if a.size <= FEW or a.__class__ is not np.ndarray:
        return a.astype(kind)
    return scaled(a, 1.0, np.empty_like(a, kind))


def widened(a: np.ndarray | None) -> Any:
    """``a`` in float32 if it is of a half type; None stays."""
    return cast(a, _F32) if a is not None and is_half(a.dtype) else a


def through_float32(forward: Callable) -> Callable:
    """``forward(arrays..., **params)`` with arrays of half types computed in float32; what others
    need is ``forward`` itself, under ``on_wide``."""

    @functools.wraps(forward)
    def run(a: Any, *rest: object, **params: object) -> Any:
        kind = a.dtype
        if not is_half(kind):
            return forward(a, *rest, **params)
        return cast(forward(*(widened(x) for x in (a, *rest)), **params), kind)

    run.on_wide = forward  # type: ignore[attr-defined]
    return run


def add_up(a: np.ndarray, dims: tuple, keepdim: bool) -> np.ndarray:
    """The sum over ``dims`` in ``accumulator``'s type.

    numpy adds pairwise along contiguous memory, but one after the other across it; there, long
    sums go in blocks, so that the rounding error stays that of a few dozen additions.
    """
    wide = accumulator(a.dtype)
    if dims and wide.kind in "fc":
        found = _of_last(a, dims, keepdim) if wide is a.dtype else None
        if found is not None:
            return found
        if a.size > SHORT:
            return _across(a, dims, keepdim, wide)
    return np.add.reduce(a, axis=dims, dtype=wide, keepdims=keepdim)  # type: ignore[call-overload]


def _across(a: np.ndarray, dims: tuple, keepdim: bool, wide: np.dtype) -> Any:
    long = max(dims, key=a.shape.__getitem__)
    if a.shape[long] > BLOCK and a.strides[long] != a.itemsize:
        return _in_blocks(a, dims, keepdim, long, wide)
    return np.add.reduce(a, axis=dims, dtype=wide, keepdims=keepdim)  # type: ignore[call-overload]


def _of_last(a: np.ndarray, dims: tuple, keepdim: bool) -> np.ndarray | None:
    """The sum over ``dims`` where generated code does the last of these. (How many sums there are
    is not asked: each would depend on it.)"""
    first = a.ndim
    while first - 1 in dims:
        first -= 1
    sums = last_sums.of_rows(a, math.prod(a.shape[first:]))
    if sums is None:
        return None
    ones = (1,) * (a.ndim - first if keepdim else 0)
    sums = sums.reshape((*a.shape[:first], *ones))
    rest = tuple(d for d in dims if d < first)
    return _across(sums, rest, keepdim, sums.dtype) if rest else sums


def total(a: np.ndarray, dims: tuple, keepdim: bool) -> np.ndarray:
    """``add_up``, rounded to the type of ``a`` if that is a half type."""
    kind = a.dtype
    few = FEWEST if a.ndim - 1 in dims else SHORT
    if kind.kind == "f" and a.size <= few and kind.itemsize > 2:
        # the commonest, without more ado
        return np.add.reduce(a, dims, None, None, keepdim)  # type: ignore[call-overload]
    out = add_up(a, dims, keepdim)
    return out.astype(kind) if is_half(kind) else out


def _in_blocks(a: np.ndarray, dims: tuple, keepdim: bool, long: int, wide: np.dtype) -> Any:
    n = a.shape[long]
    count = n // BLOCK
    ahead = (slice(None),) * long
    blocks = a[(*ahead, slice(count * BLOCK))]
    blocks = blocks.reshape(*a.shape[:long], count, BLOCK, *a.shape[long + 1 :])
    parts = [np.add.reduce(blocks, axis=long + 1, dtype=wide)]
    if n % BLOCK:
        rest = a[(*ahead, slice(count * BLOCK, n))]
        parts.append(np.add.reduce(rest, axis=long, dtype=wide, keepdims=True))
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=long)
    return of_blocks(joined, dims, keepdim, wide)


def of_blocks(joined: np.ndarray, dims: tuple, keepdim: bool, wide: np.dtype) -> Any:
    """The sums over ``dims`` in type ``wide`` from those of ``BLOCK`` numbers each."""
    if wide not in _RUNNING:
        return add_up(joined, dims, keepdim)
    out = np.add.reduce(  # type: ignore[call-overload]
        joined, axis=dims, dtype=_RUNNING[wide], keepdims=keepdim
    )
    return np.asarray(out, wide)


def count(shape: tuple, dims: tuple) -> int:
    """How many elements one result of a reduction over ``dims`` is made of."""
    return math.prod(shape[d] for d in dims)


def log1p_of(a: np.ndarray) -> Any:
    """``log1p``; numpy's loses the digits of complex numbers that are small."""
    if a.dtype.kind != "c":
        return np.log1p(a)
    wide = a.astype(np.complex128, copy=False)
    x, y = wide.real, wide.imag
    near = np.hypot(x, y) < 0.5
    small = 0.5 * np.log1p(np.where(near, x * (2 + x) + y * y, 0.0))
    out = np.empty(a.shape, wide.dtype)
    out.real = np.where(near, small, np.log(np.hypot(1 + x, y)))
    out.imag = np.arctan2(y, 1 + x)
    return out.astype(a.dtype, copy=False)
