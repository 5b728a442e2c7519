"""Shapes and types without numbers: ``ShapeDtypeStruct``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...func.structured_bodies import Aval
from .array import Array, kind_of
from .types import canonical


class ShapeDtypeStruct:
    """A shape and a type: what ``eval_shape`` gives, and takes."""

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(
        self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, **_: Any
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.shape = tuple(shape)
        self.dtype, self.weak_type, self.sharding = np.dtype(dtype), weak_type, sharding

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def _key(self) -> tuple:
        return self.shape, self.dtype, self.weak_type, self.sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def update(self, **changed: Any) -> ShapeDtypeStruct:
        """The same with other parts."""
        parts = {n: getattr(self, n) for n in self.__slots__} | changed
        return ShapeDtypeStruct(parts.pop("shape"), parts.pop("dtype"), **parts)

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
