"""Old constructors: ``FloatTensor``, ``LongTensor`` and their kin. They are types for isinstance
and functions that make tensors."""

from __future__ import annotations

from typing import Any

from ...core import dtypes
from ...core.tensor import Tensor
from ...ops import create

KINDS = {
    "FloatTensor": dtypes.float32,
    "DoubleTensor": dtypes.float64,
    "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16,
    "LongTensor": dtypes.int64,
    "IntTensor": dtypes.int32,
    "ShortTensor": dtypes.int16,
    "CharTensor": dtypes.int8,
    "ByteTensor": dtypes.uint8,
    "BoolTensor": dtypes.bool,
}


class _Legacy(type):
    kind: dtypes.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return create.construct(cls.kind, args)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.kind


def classes() -> dict[str, type]:
    """The old types by name."""
    return {name: _Legacy(name, (), {"kind": kind}) for name, kind in KINDS.items()}
