"""default_collate and default_convert: kinds, shapes, and what their errors name."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest

from disttrain.core import Tensor, wrap
from disttrain.core.types import dtypes
from disttrain.data import default_collate, default_convert
from disttrain.errors import DTypeError, ShapeError

Pair = namedtuple("Pair", "x y")


def check(got, values, kind):
    assert isinstance(got, Tensor) and got.dtype is kind
    assert got.array.astype(float).tolist() == values


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        ([1, 2], dtypes.int64), ([1.5, 2.0], dtypes.float64), ([True, False], dtypes.bool),
        ([np.float32(1), np.float32(2)], dtypes.float32), ([np.int8(1), np.int8(2)], dtypes.int8),
        ([np.float64(1), np.float64(2)], dtypes.float64), ([np.bool_(1), np.bool_(0)], dtypes.bool),
        ([1.0, 2], dtypes.float64),
    ],
)  # fmt: skip
def test_numbers(batch, kind):
    check(default_collate(batch), [float(b) for b in batch], kind)


def test_complex_numbers():
    assert default_collate([1j, 2 + 1j]).dtype is dtypes.complex128


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (3, 0)])
def test_arrays_and_tensors(kind, shape):
    rows = [np.full(shape, i).astype(kind) for i in range(4)]
    want = np.stack(rows)
    for batch in (rows, [wrap(r) for r in rows]):
        got = default_collate(batch)
        assert got.array.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got.array, want)
        assert not any(np.shares_memory(got.array, r) for r in rows)


def test_arrays_of_the_other_byte_order():
    check(default_collate([np.array([1.0], ">f4")] * 2), [[1], [1]], dtypes.float32)


def test_gradients_flow_through_a_batch():
    rows = [wrap(np.ones(2)).requires_grad_() for _ in range(3)]
    assert default_collate(rows).requires_grad


def test_structure():
    batch = [
        {"a": (1, "x"), "b": [2.0, np.ones(2)], "c": Pair(i, b"y"), "d": OrderedDict(e=i)}
        for i in range(2)
    ]
    got = default_collate(batch)
    assert list(got) == ["a", "b", "c", "d"]
    check(got["a"][0], [1, 1], dtypes.int64)
    assert list(got["a"][1]) == ["x", "x"] and type(got["a"]) is list
    check(got["b"][1], [[1, 1], [1, 1]], dtypes.float64)
    assert type(got["c"]) is Pair and list(got["c"].y) == [b"y", b"y"]
    assert type(got["d"]) is OrderedDict
    check(got["d"]["e"], [0, 1], dtypes.int64)


def test_other_mappings_and_sequences():
    assert type(default_collate([UserDict(a=1), UserDict(a=2)])) is UserDict
    assert type(default_collate([MappingProxyType({"a": 1})] * 2)) is MappingProxyType
    check(default_collate([range(2), range(1, 3)])[1], [1, 2], dtypes.int64)
    assert default_collate(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("batch", "kind", "match"),
    [
        ([], ShapeError, "no samples"),
        ([np.zeros(2), np.zeros(2), np.zeros(3)], ShapeError, r"sample 2 .* \[3\], .* \[2\]"),
        ([np.zeros((1, 3)), np.zeros((2, 3))], ShapeError, r"sample 1 .* \[2, 3\]"),
        ([np.zeros(3), np.zeros(1)], ShapeError, "sample 1"),
        ([wrap(np.zeros(2)), wrap(np.zeros(4))], ShapeError, r"\[4\].*Crop or pad"),
        ([{"a": (0, np.zeros(2))}, {"a": (0, np.zeros(3))}], ShapeError, r"1 .* at \['a'\]\[1\]"),
        ([{"a": 1}, {}], ShapeError, "sample 1 of the batch has no 'a'"),
        ([{"a": 1}, 3], ShapeError, "sample 1 of the batch has no 'a'"),
        ([(1, 2), (1,)], ShapeError, "sample 1 of the batch has 1 parts, sample 0 has 2"),
        ([(1, 2), 3], DTypeError, "sample 1 of the batch is a int"),
        ([wrap(np.zeros(1)), None], DTypeError, "sample 1 of the batch is a NoneType"),
        ([1, None], DTypeError, "sample 1 of the batch is a NoneType"),
        ([1, 1 << 70], DTypeError, "do not fit int64"),
        ([None, None], DTypeError, "sample 0 of the batch is a NoneType"),
        ([object()], DTypeError, "collate_fn"),
        ([np.array(["a"])], DTypeError, "numpy array of <U1"),
        ([np.array([None])], DTypeError, "numpy array of object"),
        ([np.zeros(1), "a"], DTypeError, "sample 1 of the batch is a str"),
    ],
)  # fmt: skip
def test_errors_name_the_sample_and_the_place(batch, kind, match):
    with pytest.raises(kind, match=match):
        default_collate(batch)


def test_convert():
    got = default_convert({"a": [np.ones(2), "x"], "b": (1, np.float32(2)), "p": Pair(1, 2.5)})
    check(got["a"][0], [1, 1], dtypes.float64)
    assert got["a"][1] == "x" and got["b"][0] == 1 and got["p"] == Pair(1, 2.5)
    check(got["b"][1], 2, dtypes.float32)
    t = wrap(np.ones(1))
    assert default_convert(t) is t and default_convert(np.str_("a")) == "a"
