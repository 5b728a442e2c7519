"""TensorFlow's element types, shapes and specifications: objects with its names and its words."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ... import graphs
from ...core.types.named import NamedType
from ...partial_shape import PartialShape

# TensorFlow's numbers of types; what messages of operations call them otherwise.
_NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7,
            "complex64": 8, "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18,
            "float16": 19, "uint32": 22, "uint64": 23}  # fmt: skip
_WORDS = {"float32": "float", "float64": "double", "float16": "half"}


class DType(NamedType):
    """An element type: one object each (``tf.float32``), equal to its name and to numpy's."""

    refusal = "Cannot convert the argument `type_value`: {!r} to a TensorFlow DType."
    alias: ClassVar = {float: "float32", "float": "float32"}
    is_quantized, is_numpy_compatible = False, True

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"


DTYPES: dict[str, DType] = DType.declare({n: (i, _WORDS.get(n, n)) for n, i in _NUMBERS.items()})
as_dtype = DType.of


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

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"

    def example(self, size: int) -> Any:
        if self.dtype.inner is None:
            return np.full([size if d is None else d for d in self.shape or ()], b"", object)
        return graphs.Spec(self.shape, self.dtype.inner).example(size)


NAMES: dict[str, Any] = {
    "DType": DType, "TensorShape": TensorShape, "TensorSpec": TensorSpec, "TypeSpec": TypeSpec,
    "as_dtype": as_dtype, "half": DTYPES["float16"], "double": DTYPES["float64"],
}  # fmt: skip
