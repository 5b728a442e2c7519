"""Numbers as their bits: leading zeros, shorter mantissas, other types over the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import special
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...ops import api as ops
from .. import elements
from ..bits import bitwise_count

_WORD = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def population_count(x: Tensor) -> Tensor:
    """How many bits of an integer are set."""
    word = bitcast(x, np.dtype(_WORD[x.meta()[1].itemsize]))
    return bitwise_count(word).to(x.dtype)


def clz(x: Tensor) -> Tensor:
    """How many leading bits of an integer are zeros."""
    bits = 8 * x.meta()[1].itemsize
    kind = x.dtype
    word, count, width = bitcast(x, np.dtype(_WORD[bits // 8])), ops.zeros_like(x), bits // 2
    for _ in range(bits.bit_length() - 1):
        upper = elements.right_shift(word, ops.full_like(word, bits - width))
        empty = upper == 0
        count = count + empty.to(kind) * width
        word = ops.where(empty, elements.left_shift(word, ops.full_like(word, width)), word)
        width //= 2
    return count + (word == 0).to(kind)


def bitcast(x: Tensor, kind: Any) -> Tensor:
    """The bits of ``x`` as another type. Of a narrower one: a last dimension for the parts; of a
    wider one: the last dimension is put together."""
    kind = np.dtype(kind)
    own = x.meta()[1]
    if own == kind:
        return x
    if own.kind == "b" or kind.kind == "b":
        return x.to(dtypes.of(kind))
    if own.itemsize > kind.itemsize:
        return x.contiguous().unsqueeze(-1).view(dtypes.of(kind))
    if own.itemsize < kind.itemsize:
        return x.contiguous().view(dtypes.of(kind)).squeeze(-1)
    return x.contiguous().view(dtypes.of(kind))


def reduce_precision(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """The nearest number with so many bits of exponent and mantissa, halves to even ones; what is
    beyond the exponents is infinite or zero."""
    kind = x.meta()[1]
    info = np.finfo(kind) if kind.kind == "f" else dtypes.finfo(x.dtype)
    out = x
    own = {2: 10, 4: 23, 8: 52}[kind.itemsize] if kind.name != "bfloat16" else 7
    if mantissa_bits < own:
        word = np.dtype(f"int{8 * kind.itemsize}")
        drop = own - mantissa_bits
        bits = bitcast(x, word)
        odd = (bits >> drop) & 1
        rounded = (bits + (odd + ((1 << (drop - 1)) - 1))) & ~((1 << drop) - 1)
        out = ops.where(ops.isfinite(x), bitcast(rounded, kind), x)
    own_exponent = 8 * kind.itemsize - 1 - own
    if exponent_bits < own_exponent:
        bias = (1 << (exponent_bits - 1)) - 1
        least, most = 2.0 ** (1 - bias), (2.0 - 2.0**-mantissa_bits) * 2.0**bias
        size = out.abs()
        out = ops.where(size > min(most, float(info.max)), ops.copysign(_inf(out), out), out)
        out = ops.where(size < least, ops.copysign(ops.zeros_like(out), out), out)
    return out


def _inf(like: Tensor) -> Tensor:
    return ops.full_like(like, float("inf"))


def round_away(x: Tensor) -> Tensor:
    """The nearest whole number, halves away from zero."""
    whole = ops.trunc(x)
    return ops.where((x - whole).abs() >= 0.5, whole + ops.copysign(ops.ones_like(x), x), whole)


def polygamma(order: Tensor, x: Tensor) -> Tensor:
    """Derivatives of the digamma function, of orders that are tensors too."""
    sign = ops.where(order % 2 == 0, -ops.ones_like(order), ops.ones_like(order))
    higher = sign * ops.exp(ops.lgamma(order + 1)) * special.zeta(order + 1, x)
    return ops.where(order == 0, ops.digamma(x), higher)


def shift_right(x: Tensor, by: Tensor) -> Tensor:
    """``x`` shifted to the right, its highest bit repeated, of unsigned numbers too."""
    kind = x.meta()[1]
    word = np.dtype(kind.name.removeprefix("u"))
    return bitcast(elements.right_shift(bitcast(x, word), bitcast(by, word)), kind)


def maximum(a: Tensor, b: Tensor) -> Tensor:
    """The larger ones; of complex numbers by real parts, then by imaginary ones."""
    return ops.where(elements.gt(a, b), a, b) if a.meta()[1].kind == "c" else ops.maximum(a, b)


def minimum(a: Tensor, b: Tensor) -> Tensor:
    """The smaller ones."""
    return ops.where(elements.lt(a, b), a, b) if a.meta()[1].kind == "c" else ops.minimum(a, b)
