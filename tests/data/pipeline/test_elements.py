"""Elements: structures, leaves, bytes."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import elements as e
from disttrain.errors import DTypeError, SerializationError

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "element",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        (np.float32(1.5), {"a": np.zeros(0), "b": None}),
        {"text": np.array([b"a", b"", b"\xff\x00"], object)},
        Point(np.asarray(True), (np.asarray(1j),)),
        np.asarray(dt.ones(2, dtype=dt.bfloat16).numpy()),
    ],
)
def test_bytes_of_an_element_are_read_as_it_was(element):
    element = e.lower(element)
    again = e.decode(e.encode(element))
    assert e.form(again) == e.form(element)
    for a, b in zip(e.flatten(again)[0], e.flatten(element)[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


def test_what_is_no_element_is_refused():
    data = e.encode(e.lower((1, 2)))
    for wrong in (b"", data[:-1], data + b"x", b"\x05\x00\x00\x00hello"):
        with pytest.raises(SerializationError, match="no element"):
            e.decode(wrong)


def test_leaves():
    assert e.as_leaf(1).dtype == np.int64
    assert e.as_leaf(1.0).dtype == np.float32
    assert e.as_leaf([1, 2.0]).dtype == np.float32
    assert e.as_leaf(["a", b"b"]).tolist() == [b"a", b"b"]
    assert e.as_leaf(b"a\0").item() == e.as_leaf([b"a\0"]).item(0) == b"a\0"
    assert e.as_leaf(dt.ones(2, requires_grad=True) * 2).tolist() == [2.0, 2.0]
    assert e.as_leaf([dt.ones(2), dt.zeros(2)]).shape == (2, 2)
    assert e.as_leaf([]).shape == (0,)
    with pytest.raises(DTypeError, match="leaf of an element"):
        e.as_leaf(object())
    with pytest.raises(DTypeError, match="datetime"):
        e.as_leaf(np.array("2020-01-01", "M8[D]"))
    with pytest.raises(ValueError):
        e.as_leaf([[1, 2], [3]])


def test_a_list_is_one_array_and_a_tuple_is_not():
    assert isinstance(e.lower([1, 2]), np.ndarray)
    assert len(e.lower((1, 2))) == 2
    assert e.lift(e.lower("text")) == b"text"
    assert isinstance(e.lift(e.lower(3)), dt.Tensor)


def test_structures_are_rebuilt():
    tree = {"b": (1, None), "a": Point([1], "x")}
    leaves, build = e.flatten(tree)
    assert leaves == [1, [1], "x"]
    assert build(["p", "q", "r"]) == {"b": ("p", None), "a": Point("q", "r")}
    assert e.map_leaves(str, (1, (2,))) == ("1", ("2",))


def test_leaves_beside_others():
    found = e.paired(lambda a, b: (a, b), {"a": 1, "b": (2, 3)}, {"a": [4], "b": ([5], [])})
    assert found == {"a": (1, [4]), "b": ((2, [5]), (3, []))}
    assert e.paired(lambda a, b: b, (1, 2), None) == (None, None)
