"""Old constructors: ``FloatTensor``, ``LongTensor`` and their kin, ``Variable``. They are types
for isinstance, and functions that make tensors. Knows the core, not the module layout."""

from __future__ import annotations

from typing import Any

from ....autograd import Variable
from ....core.backward.function import Function
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.device import set_default_device
from ....ops.functions.creation import data

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
    """``FloatTensor(2, 3)`` (sizes), ``FloatTensor([1, 2])`` (data)."""

    kind: dtypes.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return data.construct(cls.kind, args, **kwargs)

    def __instancecheck__(cls, value: Tensor) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.kind


class _LegacyCuda(_Legacy):
    """The same on the current CUDA device."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return data.construct(cls.kind, args, **{"device": "cuda", **kwargs})

    def __instancecheck__(cls, value: Tensor) -> bool:
        return super().__instancecheck__(value) and value.is_cuda


class InplaceFunction(Function):
    """A Function that may be told to work in place."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class _Variable(type):
    """``Variable(t)`` is a tensor, and every tensor is a Variable."""

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        return Variable(data, requires_grad and not volatile)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)


def classes() -> dict[str, type]:
    """The old types by name."""
    return {name: _Legacy(name, (), {"kind": kind}) for name, kind in KINDS.items()}


def cuda_classes() -> dict[str, type]:
    return {name: _LegacyCuda(name, (), {"kind": kind}) for name, kind in KINDS.items()}


def variable() -> type:
    return _Variable("Variable", (), {})


def set_default_tensor_type(kind: Any) -> None:
    """``set_default_tensor_type(torch.DoubleTensor)``, or by the type's name."""
    name = kind if isinstance(kind, str) else kind.__name__
    dtypes.set_default_dtype(KINDS[name.rpartition(".")[2]])
    if "cuda" in name or isinstance(kind, _LegacyCuda):
        set_default_device("cuda")
