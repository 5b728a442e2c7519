"""Element types of ONNX as ours, and arrays of the messages that hold numbers.

Types of fewer than 8 bits are held in the next wider type of ours: their values are all there, and
``narrow`` says what a cast to them does.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...core.types import dtypes
from ...core.types.dtypes import dtype
from ...errors import DTypeError, SerializationError

_SAME = """float32 uint8 int8 uint16 int16 int32 int64 bool float16 float64 uint32 uint64 complex64
complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"""
_RENAMED = {"float32": "FLOAT", "float64": "DOUBLE", "float8_e8m0fnu": "FLOAT8E8M0"}


def _number(name: str) -> int | None:
    """The number of the type that we call ``name``."""
    return getattr(TensorProto, _RENAMED.get(name, name.replace("8_", "8").upper()), None)


OURS: dict[int, dtype] = {
    number: getattr(dtypes, name) for name in _SAME.split() if (number := _number(name)) is not None
}
NUMBERS = {kind: number for number, kind in OURS.items()}
# Types of fewer than 8 bits: what holds them, and what has exactly their values.
NARROW: dict[int, tuple[dtype, Any]] = {
    getattr(TensorProto, name): (held, getattr(ml_dtypes, exact))
    for name, held, exact in (
        ("INT4", dtypes.int8, "int4"),
        ("UINT4", dtypes.uint8, "uint4"),
        ("INT2", dtypes.int8, "int2"),
        ("UINT2", dtypes.uint8, "uint2"),
        ("FLOAT4E2M1", dtypes.float32, "float4_e2m1fn"),
    )
    if hasattr(TensorProto, name) and hasattr(ml_dtypes, exact)
}


def type_name(number: int) -> str:
    """What ONNX calls an element type."""
    try:
        return TensorProto.DataType.Name(number)
    except ValueError:
        return f"number {number}"


def held_in(number: int) -> dtype:
    """Our type that holds elements of ONNX's type ``number``."""
    if number in OURS:
        return OURS[number]
    if number in NARROW:
        return NARROW[number][0]
    raise DTypeError(f"elements of type {type_name(number)} have no type here")


def held(array: np.ndarray) -> np.ndarray:
    """An array of the package's as one of a type that we have."""
    for kind, exact in NARROW.values():
        if array.dtype == exact:
            return array.astype(kind.np)
    return array


def array_of(tensor: TensorProto, most: int, where: str) -> np.ndarray:
    """The numbers (or texts, as objects) of a message. ``most``: bytes that it may have."""
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape):
        raise SerializationError(f"{where}: sizes {shape}; needed are sizes of 0 or more")
    if tensor.data_type not in OURS and tensor.data_type not in (*NARROW, TensorProto.STRING):
        raise SerializationError(
            f"{where}: elements of type {type_name(tensor.data_type)}, which has no type here"
        )
    _check_length(tensor, math.prod(shape), most, where)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, AttributeError, IndexError) as error:
        raise SerializationError(f"{where}: damaged numbers ({error})") from None
    if tensor.data_type == TensorProto.STRING:
        texts = [s.decode("utf-8", "replace") if isinstance(s, bytes) else s for s in array.flat]
        out = np.empty(len(texts), object)
        out[:] = texts
        return out.reshape(shape)
    return held(array)


def _check_length(tensor: TensorProto, count: int, most: int, where: str) -> None:
    """Before any memory is taken: as many bytes as the sizes say."""
    if tensor.data_type == TensorProto.STRING:
        given, needed, what = len(tensor.string_data), count, "texts"
    elif tensor.HasField("raw_data"):
        bits = _bits(tensor.data_type)
        given, needed, what = len(tensor.raw_data), (count * bits + 7) // 8, "bytes"
    else:
        given, needed, what = _typed(tensor, count)
    if given != needed:
        raise SerializationError(
            f"{where}: sizes {tuple(tensor.dims)} of {type_name(tensor.data_type)} need {needed} "
            f"{what}; the file has {given}"
        )
    if count * 8 > most * 8 or needed > most:
        raise SerializationError(f"{where}: {count} elements; at most {most} bytes are read")


def _bits(kind: int) -> int:
    if kind in NARROW:
        return 2 if "2" == type_name(kind)[-1] and "INT" in type_name(kind) else 4
    return OURS[kind].itemsize * 8


def _typed(tensor: TensorProto, count: int) -> tuple[int, int, str]:
    """Elements that a message's field of numbers has, and how many it needs."""
    try:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    except (KeyError, ValueError):
        return 0, count, "elements"
    needed = count
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        needed = 2 * count
    elif tensor.data_type in NARROW:
        per = 8 // _bits(tensor.data_type)
        needed = -(-count // per)
    return len(getattr(tensor, field)), needed, "elements"
