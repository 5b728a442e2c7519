"""Modules of JAX's that are a few names each: ``core``, ``typing``, ``dtypes``, ``extend`` ..."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...core.gate import Tracer as _Traced
from ...func import checking
from ...func.trees.flat import Flat
from ...func.trees.vectors import raveled
from . import checkify, key_types, types
from . import random as _random
from .array import Array, kind_of
from .flat import BORDER

ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
DTypeLike = str | type | np.dtype | Any


class _TracerClass(type):
    def __instancecheck__(cls, value: object) -> bool:
        if not isinstance(value, Array):
            return False
        inner = value._value
        return isinstance(inner, _Traced) or inner.graph_node() is not None


class Tracer(metaclass=_TracerClass):
    """What an Array is an instance of while a transform runs the function that it is in."""


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The type that is used for ``dtype``."""
    return dtype if isinstance(dtype, key_types.KeyType) else types.canonical(dtype)


def result_type(*values: Any, return_weak_type_flag: bool = False) -> Any:
    """The type that values or types meet in."""
    kinds = [
        (types.canonical(v), False) if isinstance(v, (type, str, np.dtype)) else kind_of(v)
        for v in values
    ]
    found, weak = types.result_kind(*kinds)
    return (found, weak) if return_weak_type_flag else found


def check_grads(
    f: Callable, args: Any, order: int, modes: Any = ("fwd", "rev"), atol: float | None = None,
    rtol: float | None = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Raise ``AssertionError`` where derivatives of ``f`` are not what small steps change."""
    flat = Flat(BORDER, f, tuple(args))
    checking.check_grads(flat, flat.tensors, order, modes, atol, rtol, eps or 1e-3)


def _own(module: Any) -> dict[str, Any]:
    """The public names that a module defines."""
    return {
        n: v
        for n, v in vars(module).items()
        if not n.startswith("_") and getattr(v, "__module__", module.__name__) == module.__name__
    }


NAMES: dict[str, dict[str, Any]] = {  # by the module that has them under "jax"
    "core": {"Tracer": Tracer},
    "typing": {"ArrayLike": ArrayLike, "DTypeLike": DTypeLike},
    "dtypes": {
        "canonicalize_dtype": canonicalize_dtype,
        "result_type": result_type, "prng_key": key_types.prng_key,
        "extended": key_types.extended, "bfloat16": ml_dtypes.bfloat16,
        "float0": np.dtype([("float0", "V", 0)]), **types.NAMES,
    },
    "flatten_util": {"ravel_pytree": functools.partial(raveled, BORDER)},
    "test_util": {"check_grads": check_grads},
    "experimental.checkify": checkify.NAMES,
    "extend": {},
    "extend.core": {"Tracer": Tracer},
    "extend.random": _random.NAMES,
    "interpreters": {},
    "_src": {},
    "_src.compiler": {},
}  # fmt: skip
