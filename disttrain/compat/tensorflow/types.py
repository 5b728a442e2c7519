"""TensorFlow's element types, shapes and specifications: objects with its names and its words."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from ... import graphs
from ...core.types import dtypes
from ...partial_shape import PartialShape

# name -> (TensorFlow's number of it, what messages of operations call it)
_TABLE = {
    "float32": (1, "float"), "float64": (2, "double"), "int32": (3, "int32"),
    "uint8": (4, "uint8"), "int16": (5, "int16"), "int8": (6, "int8"), "string": (7, "string"),
    "complex64": (8, "complex64"), "int64": (9, "int64"), "bool": (10, "bool"),
    "bfloat16": (14, "bfloat16"), "uint16": (17, "uint16"), "complex128": (18, "complex128"),
    "float16": (19, "half"), "uint32": (22, "uint32"), "uint64": (23, "uint64"),
}  # fmt: skip


class DType:
    """An element type: one object each (``tf.float32``), equal to its name and to numpy's."""

    def __init__(self, name: str, number: int, word: str) -> None:
        self.name, self.as_datatype_enum, self.word = name, number, word
        text = name == "string"
        kind = object if text else np.dtype(getattr(ml_dtypes, name, name)).type
        self.as_numpy_dtype: Any = kind
        self.inner = None if text else dtypes.of(np.dtype(kind))  # disttrain's type

    base_dtype = property(lambda self: self)
    is_floating = property(lambda self: "float" in self.name)
    is_complex = property(lambda self: "complex" in self.name)
    is_integer = property(lambda self: "int" in self.name)
    is_unsigned = property(lambda self: self.name.startswith("uint"))
    is_bool = property(lambda self: self.name == "bool")
    is_quantized = property(lambda self: False)
    is_numpy_compatible = property(lambda self: True)
    size = property(lambda self: 1 if self.inner is None else self.inner.itemsize)
    real_dtype = property(lambda self: DTYPES[
        {"complex64": "float32", "complex128": "float64"}.get(self.name, self.name)])  # fmt: skip
    max = property(lambda self: self._limit("max"))
    min = property(lambda self: self._limit("min"))
    limits = property(lambda self: (0 if self.is_unsigned else self.min, self.max))

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        if not (self.is_floating or self.is_integer):
            raise TypeError(f"Cannot find {which}imum value of {self}.")
        about = ml_dtypes.finfo if self.is_floating else np.iinfo
        return getattr(about(self.as_numpy_dtype), which)

    def is_compatible_with(self, other: Any) -> bool:
        return self is as_dtype(other)

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __eq__(self, other: object) -> bool:
        try:
            return other is not None and self is as_dtype(other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __reduce__(self) -> tuple:
        return as_dtype, (self.name,)


DTYPES: dict[str, DType] = {name: DType(name, *about) for name, about in _TABLE.items()}


def as_dtype(value: Any) -> DType:
    """The type that ``value`` means: a DType, a name, numpy's, Python's or disttrain's."""
    if isinstance(value, DType):
        return value
    try:
        return _found(value)
    except (TypeError, KeyError):
        raise TypeError(
            f"Cannot convert the argument `type_value`: {value!r} to a TensorFlow DType."
        ) from None


@functools.cache
def _found(value: Any) -> DType:
    if value is float or (isinstance(value, str) and value == "float"):
        return DTYPES["float32"]
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if isinstance(value, int):
        return {d.as_datatype_enum: d for d in DTYPES.values()}[value]
    kind = np.dtype(value.numpy_dtype if hasattr(value, "numpy_dtype") else value)
    return DTYPES["string" if kind.kind in "SUO" else kind.name]


class TensorShape(PartialShape):
    """A shape whose sizes (None), or whose rank, may be unknown."""

    __slots__ = ()


class TypeSpec:
    """What a value is to be: the kind that all specifications are of."""


class TensorSpec(graphs.Spec, TypeSpec):
    """What a tensor is to be: its shape, its type and a name."""

    shapes = TensorShape

    def __init__(self, shape: Any, dtype: Any = "float32", name: str | None = None) -> None:
        super().__init__(shape, as_dtype(dtype), name)

    def example(self, size: int) -> Any:
        if self.dtype.inner is None:
            return np.full([size if d is None else d for d in self.shape or ()], b"", object)
        return graphs.Spec(self.shape, self.dtype.inner).example(size)


NAMES: dict[str, Any] = {
    "DType": DType, "TensorShape": TensorShape, "TensorSpec": TensorSpec, "TypeSpec": TypeSpec,
    "as_dtype": as_dtype, "half": DTYPES["float16"], "double": DTYPES["float64"],
}  # fmt: skip
