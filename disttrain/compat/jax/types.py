"""Which element type an operation of JAX's computes in: its lattice, weak types, 64 bits or not.

Types are numpy's. A kind is a pair (type, weak): weak are Python's numbers and what is computed
from them alone; they give way to every type of their category or a higher one. The order is that
of JAX's documentation ("Type promotion semantics").
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from ...context import thread

X64 = "compat.jax.enable_x64"  # the rank's slot: whether types of 64 bits are kept

Kind = tuple[np.dtype, bool]

_WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
# What each type goes up to directly; a star is a weak kind.
_ABOVE = {
    "bool": ["i*"], "i*": ["uint8", "int8"],
    "uint8": ["int16", "uint16"], "uint16": ["int32", "uint32"], "uint32": ["int64", "uint64"],
    "uint64": ["f*"], "int8": ["int16"], "int16": ["int32"], "int32": ["int64"], "int64": ["f*"],
    "f*": ["bfloat16", "float16", "c*"], "bfloat16": ["float32"], "float16": ["float32"],
    "float32": ["float64", "complex64"], "float64": ["complex128"],
    "c*": ["complex64"], "complex64": ["complex128"], "complex128": [],
}  # fmt: skip
_STARS = {"i": "i*", "u": "i*", "f": "f*", "V": "f*", "c": "c*"}


def enabled_x64() -> bool:
    """Whether types of 64 bits are kept (``jax_enable_x64``)."""
    return bool(thread.rank.slots.get(X64, False))


def canonical(kind: Any) -> np.dtype:
    """The numpy type that ``kind`` (a type, a name, Python's) means here: of 32 bits, where
    ``jax_enable_x64`` is off."""
    found = np.dtype(kind)
    if enabled_x64():
        return found
    return np.dtype(_WIDE.get(found.name, found.name)) if found.name in _WIDE else found


def of_number(value: complex) -> Kind:
    """The kind of a Python number."""
    if isinstance(value, bool):
        return np.dtype(bool), False
    name = {int: "int64", float: "float64", complex: "complex128"}
    for number, kind in name.items():
        if isinstance(value, number):
            return canonical(kind), True
    raise TypeError(f"{value!r} is no number")


def result_kind(*kinds: Kind) -> Kind:
    """The kind that values of ``kinds`` meet in."""
    found, weak = functools.reduce(_meet, kinds)
    return canonical(found), weak


@functools.cache
def _meet(one: Kind, other: Kind) -> Kind:
    if one == other:
        return one
    a, b = (_node(*kind) for kind in (one, other))
    common = _reach(a) & _reach(b)
    least = [n for n in common if common <= _reach(n)]
    if not least:
        raise TypeError(
            f"Input dtypes {(one[0].name, other[0].name)} have no available implicit dtype "
            "promotion path. Try explicitly casting inputs to the desired output type"
        )
    name = least[0]
    if name.endswith("*"):  # the wider of those that are of this category
        same = [k[0] for k in (one, other) if _node(k[0], True) == name]
        return max(same, key=lambda t: t.itemsize), True
    return np.dtype(getattr(ml_dtypes, name, name)), False


def _node(kind: np.dtype, weak: bool) -> str:
    return _STARS.get(kind.kind, kind.name) if weak else kind.name


@functools.cache
def _reach(node: str) -> frozenset[str]:
    above = [_reach(n) for n in _ABOVE.get(node, [])]
    return frozenset({node}.union(*above))
