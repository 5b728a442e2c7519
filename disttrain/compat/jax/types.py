"""JAX's element types: numpy's, what 64-bit ones become without ``jax_enable_x64``, and the type
that operands meet in: JAX's lattice ("Type promotion semantics" in its documentation).

A kind is a pair (numpy type, weak). Weak are Python's numbers and what is computed from them alone;
they give way to every type of their category or a higher one. Knows no array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...context import thread
from ...core.types import dtypes
from ...trace import warn
from . import key_types

X64 = "compat.jax.enable_x64"  # the rank's slots: whether types of 64 bits are kept,
PROMOTION = "compat.jax.numpy_dtype_promotion"  # and how types meet: "standard" or "strict"

Kind = tuple[np.dtype, bool]

_SMALL = tuple(d.name for d in dtypes.ALL if d.name.startswith("float8"))
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_NUMBERS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_STARS = {"i": "i*", "u": "i*", "f": "f*", "V": "f*", "c": "c*"}
_STRONG = {"i*": "int64", "f*": "float64", "c*": "complex128"}
# What each type goes up to directly; a star is a weak kind.
_ABOVE: dict[str, list[str]] = {
    "bool": ["i*"], "i*": ["uint8", "int8"],
    "uint8": ["int16", "uint16"], "uint16": ["int32", "uint32"], "uint32": ["int64", "uint64"],
    "uint64": ["f*"], "int8": ["int16"], "int16": ["int32"], "int32": ["int64"], "int64": ["f*"],
    "f*": [*_SMALL, "bfloat16", "float16", "c*"], "bfloat16": ["float32"], "float16": ["float32"],
    "float32": ["float64", "complex64"], "float64": ["complex128"],
    "c*": ["complex64"], "complex64": ["complex128"],
}  # fmt: skip
_STRICT: dict[str, list[str]] = {
    "i*": ["f*", *(d.name for d in dtypes.ALL if d.np.kind in "iu")],
    "f*": ["c*", *(d.name for d in dtypes.ALL if d.is_floating_point)],
    "c*": ["complex64", "complex128"],
}


class TypePromotionError(ValueError):
    """Types that have no common one."""


def named(name: str) -> np.dtype:
    """The type of that name: always the same object."""
    return dtypes.BY_NAME[name].np


BOOL, INT32, FLOAT32 = named("bool"), named("int32"), named("float32")


def enabled_x64() -> bool:
    """Whether types of 64 bits are kept (``jax_enable_x64``)."""
    return bool(thread.rank.slots.get(X64, False))


def known(kind: Any) -> np.dtype:
    """The one object for a type that JAX's arrays may have. Raises TypeError for others."""
    given = np.dtype(_own(kind))
    found = dtypes.BY_NUMPY.get(given) or dtypes.BY_NUMPY.get(given.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"dtype {given} is not a valid JAX array type. Only arrays of numeric types are "
            "supported by JAX."
        )
    return found.np


def _own(kind: Any) -> Any:
    """The type of what has one (an array, ``jnp.float32``), or ``kind``."""
    found = getattr(kind, "dtype", None)
    return found if isinstance(found, np.dtype) else kind


def canonical(kind: Any) -> np.dtype:
    """The type that ``kind`` (a type, a name, Python's) means here: of 32 bits, where
    ``jax_enable_x64`` is off."""
    found = known(kind)
    return found if enabled_x64() or found.name not in _NARROW else named(_NARROW[found.name])


def asked(kind: Any, where: str = "") -> np.dtype:
    """The type for a ``dtype=`` argument. A 64-bit one that is off is told in a warning."""
    if isinstance(kind, type) and kind in _NUMBERS:
        return canonical(_NUMBERS[kind])
    try:
        found = known(kind)
    except TypeError:
        raise TypeError(
            f"JAX only supports number, bool, and string dtypes, got dtype {kind} in {where}"
        ) from None
    out = canonical(found)
    if out is not found:
        warn(
            f"Explicitly requested dtype {found.name} requested in {where} is not available, and "
            f"will be truncated to dtype {out.name}. To enable more dtypes, set the jax_enable_x64 "
            "configuration option or the JAX_ENABLE_X64 shell environment variable."
        )
    return out


def of_number(value: Any) -> Kind:
    """The kind of a Python number."""
    for number, name in _NUMBERS.items():
        if isinstance(value, number):
            return canonical(name), number is not bool
    raise TypeError(f"{value!r} is no number")


def result_kind(*kinds: Kind) -> Kind:
    """The kind that values of ``kinds`` meet in."""
    strict = thread.rank.slots.get(PROMOTION) == "strict"
    return _met(kinds, enabled_x64(), strict)


@functools.cache
def _met(kinds: tuple[Kind, ...], wide: bool, strict: bool) -> Kind:
    weak = all(w for _, w in kinds)
    if len({kind for kind, _ in kinds}) == 1:
        return kinds[0][0], weak and kinds[0][0] != BOOL
    star = not weak or strict  # weak ones among themselves meet as strong ones do
    names = {_STARS.get(k.kind, k.name) if w and star else k.name for k, w in kinds}
    common = frozenset.intersection(*(_reach(n, wide, strict) for n in names))
    least = [n for n in common if common <= _reach(n, wide, strict)]
    if not least:
        raise TypePromotionError(
            f"Input dtypes {tuple(sorted(names))} have no available implicit dtype promotion path "
            "when jax_numpy_dtype_promotion=strict; or in the standard lattice. Try explicitly "
            "casting inputs to the desired output type."
        )
    found = named(_STRONG.get(least[0], least[0]))
    found = found if wide else named(_NARROW.get(found.name, found.name))
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


def real(kind: np.dtype) -> np.dtype:
    """The type of the parts of ``kind``, which is ``kind`` where it is real."""
    return named("float64" if kind.itemsize == 16 else "float32") if kind.kind == "c" else kind


def floating(kind: np.dtype) -> np.dtype:
    """``inexact``, and the parts' of a complex one."""
    return real(inexact(kind))


def summed(kind: np.dtype) -> np.dtype:
    """The type in which elements of ``kind`` are summed: integers at least the default one."""
    if kind.kind not in "biu":
        return kind
    least = canonical("uint64" if kind.kind == "u" else "int64")
    return least if kind.itemsize < least.itemsize else kind


# --- questions about types -----------------------------------------------------------------------
_GROUPS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",), "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": (*_SMALL, "bfloat16", "float16", "float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}  # fmt: skip
_GROUPS["integral"] = _GROUPS["signed integer"] + _GROUPS["unsigned integer"]
_GROUPS["numeric"] = _GROUPS["integral"] + _GROUPS["real floating"] + _GROUPS["complex floating"]


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of a kind of the array standard, of a type, or of one of several."""
    name = known(dtype).name
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one not in _GROUPS and one not in dtypes.BY_NAME:
            raise ValueError(f"Unrecognized kind='{one}' expected one of {list(_GROUPS)}")
        if name in _GROUPS.get(one if isinstance(one, str) else "", ()) or (
            (not isinstance(one, str) or one in dtypes.BY_NAME) and known(one).name == name
        ):
            return True
    return False


def _issubdtype(a: Any, b: Any) -> bool:
    """numpy's, in which the half and quarter types of ml_dtypes are floating, too."""
    one, two = map(_own, (a, b))
    abstract = isinstance(one, type) and issubclass(one, np.generic) and one.__module__ == "numpy"
    if not abstract and np.dtype(one).name in (*_SMALL, "bfloat16"):
        if isinstance(two, type) and issubclass(two, np.generic):
            return two in (np.floating, np.inexact, np.number, np.generic, np.dtype(one).type)
        return np.dtype(two) == np.dtype(one)
    return bool(np.issubdtype(one, two))


def _type_of(x: Any) -> Any:
    return x if isinstance(x, (type, key_types.KeyType)) else getattr(x, "dtype", x)


def issubdtype(a: Any, b: Any) -> bool:
    """``jnp.issubdtype``, also of the types of keys."""
    one, two = (_type_of(x) for x in (a, b))
    if isinstance(one, key_types.KeyType) or isinstance(two, key_types.KeyType):
        if isinstance(two, type):
            return issubclass(key_types.prng_key, two)
        return one == two
    if isinstance(two, type) and issubclass(two, key_types.extended):
        return isinstance(one, type) and issubclass(one, two)
    return _issubdtype(a, b)


def finfo(dtype: Any) -> Any:
    """What numbers a floating type has."""
    return ml_dtypes.finfo(_own(dtype))


def iinfo(dtype: Any) -> Any:
    """What numbers an integer type has."""
    return ml_dtypes.iinfo(_own(dtype))


class _Scalar(type):
    """The class of ``jnp.float32`` and its kin: calling one makes an array."""

    dtype: np.dtype
    make: Callable[..., Any]

    def __call__(cls, x: Any = 0) -> Any:
        return cls.make(x, dtype=cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type == other

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)


def scalar_type(name: str, make: Callable[..., Any]) -> type:
    """``jnp.<name>``: stands for numpy's type, and makes arrays by ``make`` when it is called."""
    kind = known(name)
    out = _Scalar(name, (object,), {"dtype": kind, "make": staticmethod(make)})
    out.__module__, out.__doc__ = "jax.numpy", f"A maker of arrays of type {name}."
    return out
