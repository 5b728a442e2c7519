"""``jax.numpy``: NumPy's names for JAX's arrays."""

from __future__ import annotations

import math

import numpy as np

from .. import types
from ..array import Array
from . import calls, elementwise, functions, making, methods

_TYPES = """
bool_=bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
half=float16 single=float32 double=float64 csingle=complex64 cdouble=complex128 int_=int64
uint=uint64 float_=float64 complex_=complex128
"""
_ABSTRACT = "generic number integer signedinteger unsignedinteger inexact floating complexfloating"
NAMES = {
    **functions.NAMES, **making.NAMES, **calls.NAMES, **elementwise.NAMES,
    **{name: getattr(np, name) for name in _ABSTRACT.split()},
    **types.NAMES,
    "ndarray": Array, "dtype": np.dtype, "newaxis": None, "pi": math.pi, "e": math.e,
    "inf": math.inf, "nan": math.nan, "euler_gamma": np.euler_gamma, "s_": np.s_,
    "index_exp": np.index_exp, "set_printoptions": np.set_printoptions,
    "get_printoptions": np.get_printoptions, "printoptions": np.printoptions,
    "can_cast": np.can_cast, "iterable": np.iterable,
}  # fmt: skip
for _row in _TYPES.split():
    _name, _, _kind = _row.partition("=")
    NAMES[_name] = types.scalar_type(_kind or _name, making.asarray)
NAMES["bool"] = NAMES["bool_"]
globals().update(NAMES)
__all__ = list(NAMES)
