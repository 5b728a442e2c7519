"""The lattice of element types with weak kinds, and questions about types.

A kind is a pair (numpy type, weak). Weak are Python's numbers and what is computed from them alone;
they give way to every type of their category or a higher one, as ``met`` says. ``wide``: whether
there are types of 64 bits (else those of 32 stand for them). Source: JAX's "Type promotion
semantics". Knows no tensor.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import dtypes

Kind = tuple[np.dtype, bool]

SMALL = tuple(d.name for d in dtypes.ALL if d.name.startswith("float8"))
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
NUMBERS: dict[Any, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_STARS = {"i": "i*", "u": "i*", "f": "f*", "V": "f*", "c": "c*"}
_STRONG = {"i*": "int64", "f*": "float64", "c*": "complex128"}
# What each type goes up to directly; a star is a weak kind.
_ABOVE: dict[str, list[str]] = {
    "bool": ["i*"], "i*": ["uint8", "int8"],
    "uint8": ["int16", "uint16"], "uint16": ["int32", "uint32"], "uint32": ["int64", "uint64"],
    "uint64": ["f*"], "int8": ["int16"], "int16": ["int32"], "int32": ["int64"], "int64": ["f*"],
    "f*": [*SMALL, "bfloat16", "float16", "c*"], "bfloat16": ["float32"], "float16": ["float32"],
    "float32": ["float64", "complex64"], "float64": ["complex128"],
    "c*": ["complex64"], "complex64": ["complex128"],
}  # fmt: skip
_STRICT: dict[str, list[str]] = {
    "i*": ["f*", *(d.name for d in dtypes.ALL if d.np.kind in "iu")],
    "f*": ["c*", *(d.name for d in dtypes.ALL if d.is_floating_point)],
    "c*": ["complex64", "complex128"],
}


class NoCommonType(ValueError):
    """Kinds that have no common type: their names."""


def named(name: str) -> np.dtype:
    """The type of that name: always the same object."""
    return dtypes.BY_NAME[name].np


BOOL, INT32, FLOAT32 = named("bool"), named("int32"), named("float32")


def narrowed(kind: np.dtype, wide: bool) -> np.dtype:
    """``kind``, of 32 bits in place of 64 unless ``wide``."""
    return kind if wide or kind.name not in _NARROW else named(_NARROW[kind.name])


def of_number(value: Any, wide: bool) -> Kind:
    """The kind of a Python number."""
    for number, name in NUMBERS.items():
        if isinstance(value, number):
            return narrowed(named(name), wide), number is not bool
    raise TypeError(f"{value!r} is no number")


@functools.cache
def met(kinds: tuple[Kind, ...], wide: bool = True, strict: bool = False) -> Kind:
    """The kind that values of ``kinds`` meet in; ``strict``: strong types meet in no other."""
    weak = all(w for _, w in kinds)
    if len({kind for kind, _ in kinds}) == 1:
        return kinds[0][0], weak and kinds[0][0] != BOOL
    star = not weak or strict  # weak ones among themselves meet as strong ones do
    names = {_STARS.get(k.kind, k.name) if w and star else k.name for k, w in kinds}
    common = frozenset.intersection(*(_reach(n, wide, strict) for n in names))
    least = [n for n in common if common <= _reach(n, wide, strict)]
    if not least:
        raise NoCommonType(*sorted(names))
    found = narrowed(named(_STRONG.get(least[0], least[0])), wide)
    return found, (weak or least[0] in _STRONG) and found != BOOL


@functools.cache
def _reach(node: str, wide: bool, strict: bool) -> frozenset[str]:
    up = (_STRICT if strict else _ABOVE).get(node, [])
    if node == "uint32" and not wide and not strict:
        up = ["int32", "uint64"]  # no 64-bit type of narrower ones
    return frozenset({node}.union(*(_reach(n, wide, strict) for n in up)))


# --- what functions make of a type ---------------------------------------------------------------
def inexact(kind: np.dtype) -> np.dtype:
    """``kind`` where it is floating or complex; float32 (float64 of 64-bit integers) else."""
    if kind.kind not in "biu":
        return kind
    return named("float64") if kind.itemsize == 8 else FLOAT32


def numeric(kind: np.dtype) -> np.dtype:
    """``kind``, but int32 for bool."""
    return INT32 if kind.kind == "b" else kind


def complexed(kind: np.dtype) -> np.dtype:
    """The complex type for ``kind``."""
    kind = inexact(kind)
    return kind if kind.kind == "c" else named("complex128" if kind.itemsize == 8 else "complex64")


def summed(kind: np.dtype, wide: bool = True) -> np.dtype:
    """The type in which elements of ``kind`` are summed: integers at least the default one."""
    if kind.kind not in "biu":
        return kind
    least = narrowed(named("uint64" if kind.kind == "u" else "int64"), wide)
    return least if kind.itemsize < least.itemsize else kind


# --- questions about types -----------------------------------------------------------------------
GROUPS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",), "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": (*SMALL, "bfloat16", "float16", "float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}  # fmt: skip
GROUPS["integral"] = GROUPS["signed integer"] + GROUPS["unsigned integer"]
GROUPS["numeric"] = GROUPS["integral"] + GROUPS["real floating"] + GROUPS["complex floating"]


def is_of_kind(dtype: np.dtype, kind: Any) -> bool:
    """Whether ``dtype`` is of a kind of the array standard ("integral"), a type, or of one of
    several."""
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one not in GROUPS and one not in dtypes.BY_NAME:
            raise ValueError(f"Unrecognized kind='{one}' expected one of {list(GROUPS)}")
        if dtype.name in GROUPS.get(one if isinstance(one, str) else "", ()) or (
            (not isinstance(one, str) or one in dtypes.BY_NAME)
            and dtypes.as_dtype(one).name == dtype.name
        ):
            return True
    return False


def is_subtype(one: Any, two: Any) -> bool:
    """NumPy's ``issubdtype``, in which half and quarter types of ml_dtypes are floating, too."""
    abstract = isinstance(one, type) and issubclass(one, np.generic) and one.__module__ == "numpy"
    if not abstract and np.dtype(one).name in (*SMALL, "bfloat16"):
        if isinstance(two, type) and issubclass(two, np.generic):
            return two in (np.floating, np.inexact, np.number, np.generic, np.dtype(one).type)
        return np.dtype(two) == np.dtype(one)
    return bool(np.issubdtype(one, two))
