"""The border between JAX's arrays and Tensors: what leaves of trees are, and what an integer's
tangent is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...func.structured_bodies import Border
from ...func.trees.flat import check_callable, named
from . import tree
from .array import Array, kind_of, unwrap, wrap
from .types import result_kind

float0 = np.dtype([("float0", "V")])
_INVALID = "Argument {value!r} of type {kind} is not a valid JAX type"


def as_array(value: Any, what: str = _INVALID) -> Array:
    """A leaf as an Array."""
    if isinstance(value, Array):
        return value
    if hasattr(value, "__jax_array__"):
        return as_array(value.__jax_array__())
    known = isinstance(value, (bool, int, float, complex, np.generic))
    if known or (isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"):
        return wrap(unwrap(value), kind_of(value)[1])
    if isinstance(value, Tensor):
        return wrap(value)
    raise TypeError(what.format(value=value, kind=type(value)))


def taken(leaf: Any, what: str = _INVALID) -> tuple[Tensor, bool]:
    """(the Tensor of a leaf, whether its type is weak)."""
    array = leaf if leaf.__class__ is Array else as_array(leaf, what)
    return array._value, array.weak_type


BORDER = Border(
    tree.default_registry, taken, wrap, lambda *kinds: result_kind(*kinds)[0], Array,
    lambda shape: np.zeros(shape, float0),
    lambda value: getattr(value, "dtype", None) == float0, "jax",
)  # fmt: skip
__all__ = ["BORDER", "as_array", "check_callable", "float0", "named", "taken"]
