"""Primitives that draw random numbers as functions of keys: no generator, no state.

    key_data(keys)                      the two words of each key: uint32 [..., 2]
    key_of(data)                        keys of such words
    threefry_blocks(keys, counts)       the key that belongs to each key and each counter
    threefry_draw(keys; shape, what, dtype, partitionable)
                                        [*keys' shape, *shape]: "keys", or integers of all "bits",
                                        or numbers: "unit" in [0, 1), "normal"

What is drawn by rejection is in ``rejection``.
A key is an element of an opaque type of 8 bytes, so that arrays of keys are indexed, stacked,
mapped and captured as all arrays are. ``partitionable``: element i is the block of the counter i,
whatever the shape; else counters come in two halves (both are what JAX calls by that name).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...backends.fused.elementwise import fused
from ...backends.lang.expr import Expr, abs, log1p, sqrt, where
from ...backends.lang.expr import fma as fma_of
from ...backends.llvm import threefry as bits_of
from ...core.gate import Primitive
from ...core.types import dtypes
from ..declare import primitive, unary
from .batching import front, fronted
from .elementwise import exp
from .special import erfinv

KEY = dtypes.key.np
_WORD = np.dtype(np.uint32)


# --- raw arrays -----------------------------------------------------------------------------------
def words(keys: np.ndarray) -> np.ndarray:
    """The two words of keys [m] as uint32 [m, 2]."""
    return np.ascontiguousarray(keys).view(np.uint32).reshape(*keys.shape, 2)


def split(keys: np.ndarray, n: int, partitionable: bool = True) -> np.ndarray:
    """``n`` new keys of each, as words [m, n, 2]."""
    if partitionable:
        return bits_of.pairs(keys, n)
    return bits_of.halves(keys, 2 * n).reshape(len(keys), n, 2)


def random_bits(keys: np.ndarray, n: int, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    """``n`` integers [m, n] of an unsigned type for each key."""
    size = dtype.itemsize
    if partitionable:
        found = (bits_of.words if size == 8 else bits_of.mixed)(keys, n)
        return found.astype(dtype, copy=False)
    found = bits_of.halves(keys, -(-n * size // 4))
    if size == 8:
        high, low = found[:, :n].astype(dtype), found[:, n:].astype(dtype)
        return (high << dtype.type(32)) | low
    return found.view(dtype)[:, :n]


def mantissa(dtype: np.dtype) -> int:
    """Digits of the mantissa that are kept."""
    return int(ml_dtypes.finfo(dtype).nmant)


def unit(keys: np.ndarray, n: int, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    """``n`` numbers in [0, 1) for each key: random mantissas between 1 and 2, less 1."""
    if dtype == np.float32 and partitionable:
        return bits_of.unit(keys, n)
    size, digits = 8 * dtype.itemsize, mantissa(dtype)
    kind = np.dtype(f"u{dtype.itemsize}")
    width = 8 if digits < 8 else size
    bits = random_bits(keys, n, np.dtype(f"u{width // 8}"), partitionable).astype(kind)
    bits = bits >> kind.type(width - digits)
    bits = bits | np.ones((), dtype).view(kind)
    return bits.view(dtype) - np.ones((), dtype)


def normal(keys: np.ndarray, n: int, dtype: np.dtype, partitionable: bool) -> np.ndarray:
    """``n`` normal numbers for each key: √2 erf⁻¹ of uniform ones in (-1, 1)."""
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype)).astype(dtype)
    u = unit(keys, n, dtype, partitionable)
    if dtype == np.float32:
        return _quantile(u)
    u = np.maximum(low, u * (np.ones((), dtype) - low) + low)
    return np.asarray(np.sqrt(2.0), dtype) * _erfinv(u)


def _polynomial(coefficients: tuple, at: Any) -> Any:
    out = coefficients[0]
    for c in coefficients[1:]:
        out = fma_of(out, at, c)
    return out


_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def _quantile_of(u: Expr) -> Expr:
    """√2 erf⁻¹(2u - 1), u = 0 standing for the number after -1."""
    return 1.41421356 * _giles(u * 2.0 - 0.99999994)


def _giles(x: Expr) -> Expr:
    """erf⁻¹ in single precision, as XLA computes it, too. M. Giles, Approximating the erfinv
    function, GPU Computing Gems, 2010."""
    w = -log1p(-(x * x))
    value = where(w < 5.0, _polynomial(_NEAR, w - 2.5), _polynomial(_FAR, sqrt(w) - 3.0))
    return value * x


_single = fused("erfinv_single", lambda x: where(abs(x) < 1.0, _giles(x), x * math.inf))
_quantile = fused("normal_quantile", _quantile_of)


def _erfinv(u: np.ndarray) -> np.ndarray:
    """In the nearest type that is computed in."""
    wide = u if u.dtype == np.float64 else u.astype(np.float32)
    return erfinv.forward(wide).astype(u.dtype)


# --- primitives -----------------------------------------------------------------------------------
_DRAWS: dict[str, Callable[..., np.ndarray]] = {
    "bits": random_bits, "unit": unit, "normal": normal,
    "keys": lambda keys, n, dtype, partitionable: split(keys, n, partitionable).view(KEY)[..., 0],
}  # fmt: skip


def _draw(
    keys: np.ndarray, shape: tuple, what: str, dtype: np.dtype, partitionable: bool
) -> np.ndarray:
    found = _DRAWS[what](words(keys.reshape(-1)), math.prod(shape), dtype, partitionable)
    return found.reshape((*keys.shape, *shape))


def by_keys(prim_of: Callable[[], Any]) -> Callable:
    """The batch rule of what is drawn for every key: its dimensions are in front."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        return prim_of()(*(fronted(a, d, size) for a, d in zip(args, dims)), **params), 0

    return rule


def _drawn_samples(rng: np.random.Generator) -> list:
    keys = rng.integers(0, 1 << 32, (3, 2), np.uint32).view(KEY)[:, 0]
    how = {"partitionable": True, "shape": (2, 2)}
    return [((keys,), {**how, "what": "bits", "dtype": _WORD})]


threefry_draw: Primitive = primitive(
    "threefry_draw", _draw, "keys", batch=by_keys(lambda: threefry_draw),
    shape=lambda keys, shape, what, dtype, partitionable: ((*keys.shape, *shape), dtype),
    samples=_drawn_samples,
)  # fmt: skip

key_data: Primitive = primitive(
    "key_data", words, "keys", shape=lambda keys: ((*keys.shape, 2), _WORD),
    batch=lambda args, dims, params, size: (key_data(front(args[0], dims[0])), 0),
)  # fmt: skip
key_of: Primitive = primitive(
    "key_of", lambda data: np.ascontiguousarray(data, np.uint32).view(KEY)[..., 0], "data",
    shape=lambda data: (data.shape[:-1], KEY),
    batch=lambda args, dims, params, size: (key_of(front(args[0], dims[0])), 0),
)  # fmt: skip


def _blocks(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    keys, counts = np.broadcast_arrays(keys, counts)
    found = bits_of.blocks(words(keys.reshape(-1)), words(counts.reshape(-1)))
    return found.view(KEY).reshape(keys.shape)


threefry_blocks: Primitive = primitive(
    "threefry_blocks", _blocks, "keys counts",
    shape=lambda keys, counts: (np.broadcast_shapes(keys.shape, counts.shape), KEY),
)  # fmt: skip
threefry_blocks.elementwise = True


# --- what uniform numbers go through --------------------------------------------------------------
fma: Primitive = primitive(
    "fma", fused("fma", lambda a, b, c: fma_of(a, b, c)), "a b c",
    vjp={"a": lambda g, b: g * b, "b": lambda g, a: g * a, "c": lambda g: g},
    shape=lambda a, b, c: (np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype),
    samples=lambda rng: [(tuple(rng.normal(size=(3, 4)) for _ in range(3)), {})],
)  # fmt: skip
fma.elementwise = True
erfinv_single: Primitive = unary(
    "erfinv_single", lambda x: _single(x) if x.dtype == np.float32 else erfinv.forward(x),
    lambda g, out: g * (exp(out * out) * (math.sqrt(math.pi) / 2)), floating=True,
)  # fmt: skip


# --- integers and orders --------------------------------------------------------------------------
def _within(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Integers as ``dtype``, those outside of it as its ends."""
    mine, theirs = np.iinfo(dtype), np.iinfo(a.dtype)
    return a.clip(max(mine.min, theirs.min), min(mine.max, theirs.max)).astype(dtype)


def _integers(
    keys: np.ndarray, low: np.ndarray, high: np.ndarray, dtype: np.dtype, partitionable: bool
) -> np.ndarray:
    """Twice as many random bits as the type has, modulo the span: [low, high), or ``low`` where
    that is empty. ``high`` may be one above the largest of the type."""
    kind, most = np.dtype(f"u{dtype.itemsize}"), np.iinfo(dtype).max
    pairs, shape = words(keys.reshape(-1)), low.shape
    low, high = (x.reshape(len(pairs), -1) for x in (low, high))
    over = high > min(most, np.iinfo(high.dtype).max)
    low, high = _within(low, dtype), _within(high, dtype)
    with np.errstate(over="ignore", divide="ignore"):
        span = np.where(high <= low, kind.type(1), (high - low).astype(kind))
        span = np.where(over & (high > low), span + kind.type(1), span)
        new, n = split(pairs, 2, partitionable), low.shape[1]
        upper, lower = (random_bits(new[:, k], n, kind, partitionable) for k in (0, 1))
        factor = _rest(np.full_like(span, 1 << (4 * dtype.itemsize)), span)
        factor = _rest(factor * factor, span)
        out = _rest(_rest(upper, span) * factor + _rest(lower, span), span)
        return (low + out.astype(dtype)).reshape(shape)


def _rest(a: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The remainder; ``a`` where the divisor is 0, which stands for all numbers of the type."""
    return np.where(by == 0, a, a % np.maximum(by, 1))


threefry_integers: Primitive = primitive(
    "threefry_integers", _integers, "keys low high", batch=by_keys(lambda: threefry_integers),
    shape=lambda keys, low, high, dtype, partitionable: (low.shape, dtype),
)  # fmt: skip


def _order(keys: np.ndarray, shape: tuple, dim: int, partitionable: bool) -> np.ndarray:
    """Indices along ``dim`` that shuffle each line: sorted by random keys, as often as leaves
    hardly a chance that two had the same ones each time."""
    pairs, size = words(keys.reshape(-1)), math.prod(shape)
    at = np.arange(shape[dim]).reshape(-1, *(1,) * (len(shape) - dim - 1))
    order = np.broadcast_to(at, (len(pairs), *shape))
    for _ in range(math.ceil(3 * math.log(max(1, size)) / math.log(0xFFFFFFFF))):
        new = split(pairs, 2, partitionable)
        pairs, bits = new[:, 0], random_bits(new[:, 1], size, _WORD, partitionable)
        moved = np.argsort(bits.reshape(order.shape), axis=dim + 1, kind="stable")
        order = np.take_along_axis(order, moved, dim + 1)
    return np.ascontiguousarray(order).reshape((*keys.shape, *shape))


threefry_order: Primitive = primitive(
    "threefry_order", _order, "keys", batch=by_keys(lambda: threefry_order),
    shape=lambda keys, shape, dim, partitionable: ((*keys.shape, *shape), np.dtype(np.int64)),
)  # fmt: skip
