"""JAX's element types: numpy's, what 64-bit ones become without ``jax_enable_x64``, and the words
in which ``core.types.lattice`` is asked. Knows no array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...context import thread
from ...core.types import dtypes, lattice
from ...core.types.lattice import FLOAT32, Kind, complexed, inexact, named, numeric
from ...trace import warn
from . import key_types

X64 = "compat.jax.enable_x64"  # the rank's slots: whether types of 64 bits are kept,
PROMOTION = "compat.jax.numpy_dtype_promotion"  # and how types meet: "standard" or "strict"


class TypePromotionError(ValueError):
    """Types that have no common one."""


def enabled_x64() -> bool:
    """Whether types of 64 bits are kept (``jax_enable_x64``)."""
    return bool(thread.rank.slots.get(X64, False))


def known(kind: Any) -> np.dtype:
    """The one object for a type that JAX's arrays may have. Raises TypeError for others."""
    given = np.dtype(own(kind))
    found = dtypes.BY_NUMPY.get(given) or dtypes.BY_NUMPY.get(given.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"dtype {given} is not a valid JAX array type. Only arrays of numeric types are "
            "supported by JAX."
        )
    return found.np


def own(kind: Any) -> Any:
    """The type of what has one (an array, ``jnp.float32``), or ``kind``."""
    found = getattr(kind, "dtype", None)
    return found if isinstance(found, np.dtype) else kind


def canonical(kind: Any) -> np.dtype:
    """The type that ``kind`` (a type, a name, Python's) means here: of 32 bits, where
    ``jax_enable_x64`` is off."""
    return lattice.narrowed(known(kind), enabled_x64())


def asked(kind: Any, where: str = "", default: Any = None) -> np.dtype:
    """The type for a ``dtype=`` argument (None: ``default``). A 64-bit one that is off is told in a
    warning."""
    kind = default if kind is None else kind
    if isinstance(kind, type) and kind in lattice.NUMBERS:
        return canonical(lattice.NUMBERS[kind])
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
    return lattice.of_number(value, enabled_x64())


def result_kind(*kinds: Kind) -> Kind:
    """The kind that values of ``kinds`` meet in."""
    strict = thread.rank.slots.get(PROMOTION) == "strict"
    try:
        return lattice.met(kinds, enabled_x64(), strict)
    except lattice.NoCommonType as error:
        raise TypePromotionError(
            f"Input dtypes {error.args} have no available implicit dtype promotion path when "
            "jax_numpy_dtype_promotion=strict; or in the standard lattice. Try explicitly casting "
            "inputs to the desired output type."
        ) from None


def summed(kind: np.dtype) -> np.dtype:
    """The type in which elements of ``kind`` are summed."""
    return lattice.summed(kind, enabled_x64())


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


def _type_of(x: Any) -> Any:
    return x if isinstance(x, (type, key_types.KeyType)) else getattr(x, "dtype", x)


def issubdtype(a: Any, b: Any) -> bool:
    """NumPy's, in which the half and quarter types of ml_dtypes are floating, too, and types of
    keys are their own."""
    one, two = (_type_of(x) for x in (a, b))
    if isinstance(one, key_types.KeyType) or isinstance(two, key_types.KeyType):
        return issubclass(key_types.prng_key, two) if isinstance(two, type) else one == two
    if isinstance(two, type) and issubclass(two, key_types.extended):
        return isinstance(one, type) and issubclass(one, two)
    return lattice.is_subtype(own(a), own(b))


NAMES: dict[str, Any] = {  # of ``jax.numpy``
    "finfo": lambda dtype: ml_dtypes.finfo(own(dtype)), "issubdtype": issubdtype,
    "iinfo": lambda dtype: ml_dtypes.iinfo(own(dtype)),
    "isdtype": lambda dtype, kind: lattice.is_of_kind(known(dtype), kind),
}  # fmt: skip
__all__ = ["FLOAT32", "Kind", "complexed", "inexact", "named", "numeric"]
