"""Shapes and types without numbers: ``ShapeDtypeStruct``."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ...func.structured_bodies import Aval
from .array import Array, kind_of
from .types import canonical


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class ShapeDtypeStruct:
    """A shape and a type: what ``eval_shape`` gives, and takes."""

    shape: tuple
    dtype: np.dtype
    sharding: Any
    weak_type: bool

    def __init__(
        self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, **_: Any
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.__dict__.update(
            shape=tuple(shape), dtype=np.dtype(dtype), sharding=sharding, weak_type=weak_type
        )

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    update = dataclasses.replace

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        where = f", sharding={self.sharding}" if self.sharding is not None else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{where}{weak})"


def struct(aval: Aval) -> ShapeDtypeStruct:
    """A type as ``eval_shape`` gives it."""
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak)


def aval_of(value: Any) -> Aval:
    """That of an array, a number or a ``ShapeDtypeStruct``."""
    if value.__class__ is Array:
        shape, kind = value._value.meta()
        return Aval(tuple(shape), kind, value.weak_type)
    if isinstance(value, ShapeDtypeStruct):
        return Aval(value.shape, canonical(value.dtype), value.weak_type)
    if not isinstance(value, Array) and hasattr(value, "shape") and hasattr(value, "dtype"):
        return Aval(tuple(value.shape), canonical(value.dtype), False)
    kind, weak = kind_of(value)
    return Aval(tuple(np.shape(value)) if not isinstance(value, Array) else value.shape, kind, weak)
