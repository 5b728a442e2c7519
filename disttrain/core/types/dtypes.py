"""Element types, their promotion and the default type. Knows numpy and ml_dtypes, no tensor."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from ... import context
from ...errors import DTypeError


class dtype:  # noqa: N801  (the field's spelling)
    """An element type. ``.np`` is numpy's, ``.itemsize`` in bytes."""

    namespace = "disttrain"  # how types print

    __slots__ = ("is_complex", "is_floating_point", "is_signed", "itemsize", "name", "np", "rank")

    name: str
    itemsize: builtins.int
    rank: builtins.int

    def __init__(self, name: str, np_type: Any, kind: str, rank: builtins.int) -> None:
        self.name = name
        self.np = np.dtype(np_type)
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_signed = kind != "b" and not name.startswith("uint")
        self.itemsize = self.np.itemsize
        self.rank = rank

    def __repr__(self) -> str:
        return f"{dtype.namespace}.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        """What PyTorch's errors call it."""
        return _TITLES.get(self.name, self.name)

    def to_complex(self) -> dtype:
        return complex128 if self.itemsize == 8 else complex64


bool = dtype("bool", np.bool_, "b", 0)  # noqa: A001
uint8 = dtype("uint8", np.uint8, "i", 11)
int8 = dtype("int8", np.int8, "i", 10)
int16 = dtype("int16", np.int16, "i", 12)
uint16 = dtype("uint16", np.uint16, "i", 13)
int32 = dtype("int32", np.int32, "i", 14)
uint32 = dtype("uint32", np.uint32, "i", 15)
int64 = dtype("int64", np.int64, "i", 16)
uint64 = dtype("uint64", np.uint64, "i", 17)
float8_e4m3fn = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "f", 20)
float8_e5m2 = dtype("float8_e5m2", ml_dtypes.float8_e5m2, "f", 21)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "f", 20)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "f", 21)
float8_e8m0fnu = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "f", 19)  # scales: powers of 2
float8_e8m0fnu.is_signed = False
float16 = dtype("float16", np.float16, "f", 22)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, "f", 23)
float32 = dtype("float32", np.float32, "f", 24)
float64 = dtype("float64", np.float64, "f", 25)
complex64 = dtype("complex64", np.complex64, "c", 30)
complex128 = dtype("complex128", np.complex128, "c", 31)
half, float, double = float16, float32, float64  # noqa: A001
short, int, long = int16, int32, int64  # noqa: A001
cfloat, cdouble = complex64, complex128

ALL: tuple[dtype, ...] = (bool, uint8, int8, int16, uint16, int32, uint32, int64, uint64)
ALL += (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu)
ALL += (float16, bfloat16, float32, float64, complex64, complex128)
_TITLES = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int",
    "int64": "Long", "float16": "Half", "bfloat16": "BFloat16", "float32": "Float",
    "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
key = dtype("key", np.dtype("V8"), "k", 99)  # of random numbers (``keyed``): no arithmetic has it
BY_NUMPY = {d.np: d for d in (*ALL, key)}
BY_NAME = {d.name: d for d in (*ALL, key)}


def of(np_dtype: np.dtype) -> dtype:
    """Our type for a numpy type."""
    try:
        return BY_NUMPY[np_dtype]
    except KeyError:
        native = np.dtype(np_dtype).newbyteorder("=")
        if native in BY_NUMPY:
            return BY_NUMPY[native]
        raise DTypeError(
            f"dtype: numpy's {np_dtype} has no counterpart here; convert the array first, "
            f"for example with .astype('float32')"
        ) from None


def known(array: np.ndarray) -> np.ndarray:
    """``array``, of a native type, with our own object for that type: generated code knows types
    by identity, and arrays that were unpickled, say, come with objects of their own."""
    kind = of(array.dtype).np
    return array if array.dtype is kind else array.view(kind)


def as_dtype(kind: object) -> dtype:
    """Our type for ``kind``: one of ours, numpy's, a name, or Python's bool, int, float."""
    if isinstance(kind, dtype):
        return kind
    if isinstance(kind, str):
        name = kind.rpartition(".")[2]
        if name in BY_NAME:
            return BY_NAME[name]
    builtin = {"bool": bool, "int": int64, "float": float64, "complex": complex128}
    if isinstance(kind, type) and kind.__module__ == "builtins" and kind.__name__ in builtin:
        return builtin[kind.__name__]
    try:
        return of(np.dtype(kind))  # type: ignore[call-overload]
    except TypeError:
        raise DTypeError(
            f"dtype: {kind!r} given; needed one of {', '.join(BY_NAME)} or a numpy dtype"
        ) from None


def numpy_type(kind: object) -> np.dtype | None:
    """The numpy type of ``kind``, which is as for ``as_dtype``; None for None."""
    return None if kind is None else as_dtype(kind).np


def get_default_dtype() -> dtype:
    """The type of new floating-point tensors of the calling rank (float32 at first)."""
    return context.current().slots.get("default_dtype", float32)


def set_default_dtype(kind: dtype) -> None:
    """Set the type of new floating-point tensors of the calling rank."""
    kind = as_dtype(kind)
    if not kind.is_floating_point:
        raise DTypeError(f"set_default_dtype: {kind!r} given; needed a floating-point type")
    context.current().slots["default_dtype"] = kind


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest type that both go into, by PyTorch's table."""
    if a is b:
        return a
    low, high = (a, b) if a.rank <= b.rank else (b, a)
    if high.is_complex:
        return complex128 if low is float64 or high is complex128 else complex64
    if high.is_floating_point:
        if low.is_floating_point and high.rank < float32.rank:
            return float32
        return high
    if low is bool:
        return high
    if low.is_signed == high.is_signed:
        return high
    unsigned, signed = (low, high) if high.is_signed else (high, low)
    for wide in (int16, int32, int64):
        if wide.itemsize > unsigned.itemsize and wide.itemsize >= signed.itemsize:
            return wide
    return int64


def category(kind: dtype) -> builtins.int:
    """0 bool, 1 integer, 2 floating, 3 complex: what a scalar can change."""
    if kind is bool:
        return 0
    return 3 if kind.is_complex else 2 if kind.is_floating_point else 1


class finfo:  # noqa: N801
    """Limits of a floating-point type: ``min max eps tiny smallest_normal bits``."""

    def __init__(self, kind: dtype | None = None) -> None:
        kind = as_dtype(kind or get_default_dtype())
        if kind.is_complex:  # their parts'
            kind = float64 if kind is complex128 else float32
        if not kind.is_floating_point:
            raise DTypeError(f"finfo: {kind!r} given; a floating-point type is needed; use iinfo")
        info = ml_dtypes.finfo(kind.np)
        number = builtins.float  # here ``float`` is the element type
        self.min, self.max = number(info.min), number(info.max)
        self.eps, self.tiny = number(info.eps), number(info.tiny)
        self.smallest_normal, self.bits = self.tiny, info.bits
        self.dtype, self.resolution = kind.name, number(f"1e-{info.precision}")

    def __repr__(self) -> str:
        shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        parts = [f"{name}={getattr(self, name):g}" for name in shown]
        return f"finfo({', '.join(parts)}, dtype={self.dtype})"


class iinfo:  # noqa: N801
    """Limits of an integer type: ``min max bits``."""

    def __init__(self, kind: dtype) -> None:
        info = np.iinfo(as_dtype(kind).np)
        self.min, self.max, self.bits = info.min, info.max, info.bits
        self.dtype = as_dtype(kind).name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
