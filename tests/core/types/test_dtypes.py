"""Element types: names, equality, promotion, defaults, limits, what is refused."""

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.core.types import dtypes
from disttrain.errors import DTypeError


def test_types_by_every_name():
    assert dtypes.as_dtype("float32") is dtypes.as_dtype("torch.float32") is dt.float32
    assert [dtypes.as_dtype(k) for k in (bool, int, float, complex)] == [
        dt.bool, dt.int64, dt.float64, dt.complex128,
    ]  # fmt: skip
    assert dtypes.as_dtype(np.float16) is dt.float16
    assert dtypes.as_dtype(np.dtype(">f4")) is dt.float32
    assert dtypes.as_dtype(ml_dtypes.bfloat16) is dt.bfloat16
    for wrong in ("float33", object(), np.dtype("U3")):
        with pytest.raises(DTypeError, match="dtype"):
            dtypes.as_dtype(wrong)


def test_types_are_themselves_after_pickling():
    for kind in dtypes.ALL:
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert repr(kind) == f"disttrain.{kind.name}" and kind.np.itemsize == kind.itemsize


def test_properties_of_types():
    assert dt.float64.to_complex() is dt.complex128 and dt.float32.to_complex() is dt.complex64
    assert not dt.bool.is_signed and not dt.uint8.is_signed and dt.int8.is_signed
    kinds = (dt.bool, dt.int8, dt.float16, dt.complex64)
    assert [dtypes.category(k) for k in kinds] == [0, 1, 2, 3]


def test_promotion_is_symmetric_and_holds_both():
    """By kind: never to a lesser one; among integers as numpy does, up to 64 bits."""
    integers = [dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64]
    for a, b in itertools.product(integers, integers):
        assert dt.promote_types(a, b).np == np.promote_types(a.np, b.np)
    for a, b in itertools.product(dtypes.ALL, dtypes.ALL):
        both = dt.promote_types(a, b)
        assert both is dt.promote_types(b, a)
        assert dtypes.category(both) == max(dtypes.category(a), dtypes.category(b))


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [("float16", "bfloat16", "float32"), ("float16", "int64", "float16"),
     ("bool", "uint8", "uint8"), ("complex64", "float64", "complex128"),
     ("complex64", "float16", "complex64"), ("uint64", "int8", "int64"),
     ("uint8", "int8", "int16"), ("float32", "float64", "float64")],
)  # fmt: skip
def test_promotion(a, b, want):
    assert dt.promote_types(getattr(dt, a), getattr(dt, b)) is getattr(dt, want)


def test_default_type():
    dt.set_default_dtype(dt.float64)
    try:
        assert dt.get_default_dtype() is dt.float64
        assert dt.ones(1).dtype is dtypes.as_dtype(float) is dt.float64
    finally:
        dt.set_default_dtype(dt.float32)
    with pytest.raises(DTypeError, match="floating-point type"):
        dt.set_default_dtype(dt.int64)


def test_limits():
    for kind in (dt.float16, dt.float32, dt.float64):
        ours, numpys = dt.finfo(kind), np.finfo(kind.np)
        assert (ours.max, ours.eps, ours.bits) == (numpys.max, numpys.eps, numpys.bits)
        assert ours.tiny == ours.smallest_normal == numpys.tiny and ours.dtype == kind.name
    assert dt.finfo(dt.bfloat16).max == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert dt.finfo().bits == 32 and dt.finfo(dt.complex128).bits == 64
    assert (dt.iinfo(dt.int8).min, dt.iinfo(dt.int8).max, dt.iinfo(dt.int8).bits) == (-128, 127, 8)
    with pytest.raises(DTypeError, match="iinfo"):
        dt.finfo(dt.int8)
