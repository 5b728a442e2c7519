"""Descriptions put together again: what each gives, and how doubtful ones are refused."""

from __future__ import annotations

import collections
import enum
import math
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import SerializationError
from disttrain.serialize.decoding import decode
from disttrain.serialize.objects import Known
from disttrain.serialize.structure import DEPTH, encode


class Colour(enum.Enum):
    RED = 1


class Plain:
    def hello(self):
        return "hello"


def back(tree, arrays=(), trust=True):
    def give(kind, name, location=None):
        array = dict(arrays)[name]
        out = array if kind == "array" else dt.from_numpy(array)
        return out.requires_grad_() if kind == "leaf" else out

    return decode(tree, give, "file", Known((), trust))


def there_and_back(value):
    made = encode(value)
    return back(made.tree, made.arrays)


@pytest.mark.parametrize(
    "value",
    [
        [1, (2, {"a": None}), {3, 4}, frozenset({5}), b"\x00\xff", bytearray(b"x"), range(3), ...],
        {1: 2, (3,): [4], "a": slice(1, None, 2)},
        [1 << 70, -(1 << 70), 1 + 2j, math.inf, -math.inf],
        collections.Counter("aab"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.defaultdict(int, {"a": 1}),
        collections.deque([1, 2], 2),
        dt.bfloat16,
        dt.device("meta"),
        dt.Size((1, 2)),
        Path("/a/b"),
        Colour.RED,
        np.float64(2.5),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_come_back_equal_and_of_their_type(value):
    found = there_and_back(value)
    assert found == value and type(found) is type(value)


def test_settings_of_containers_come_back():
    assert there_and_back(collections.deque([1], 7)).maxlen == 7
    assert there_and_back(collections.defaultdict(list))["new"] == []
    state = nn.BatchNorm1d(2).state_dict()
    assert there_and_back(state)._metadata == state._metadata
    assert math.isnan(there_and_back(math.nan))


def test_what_is_one_comes_back_as_one():
    inner = [1]
    found = there_and_back({"a": inner, "b": (inner, inner)})
    assert found["a"] is found["b"][0] is found["b"][1]
    circle = {}
    circle["me"] = circle
    found = there_and_back(circle)
    assert found["me"] is found


def test_arrays_of_words_and_objects_come_back():
    texts, objects = np.array([["ab", "c"]]), np.array([[1], ["x"]], object)
    found = there_and_back([texts, objects, texts])
    assert (found[0] == texts).all() and found[0].dtype == texts.dtype and found[0] is found[2]
    assert found[1].tolist() == [[1], ["x"]] and found[1].dtype == object


def test_tensors_of_special_kinds_come_back():
    p = nn.Parameter(dt.ones(2))
    found = there_and_back({"a": p, "b": p})
    assert type(found["a"]) is nn.Parameter and found["a"].requires_grad
    meta = there_and_back(dt.empty(2, 3, device="meta", dtype=dt.float16))
    assert meta.is_meta and meta.shape == (2, 3) and meta.dtype is dt.float16
    sparse = dt.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (3,))
    assert there_and_back(sparse).to_dense().tolist() == [0.0, 5.0, 0.0]


def test_methods_of_objects_come_back_bound():
    one = Plain()
    found = there_and_back([one, one.hello])
    assert found[1]() == "hello" and found[1].__self__ is found[0]


PLAIN = ["object", 0, "new", ["global", f"{__name__}:Plain"], ["tuple"], {}, None, None, None]


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ([1], "a tag is needed, 1 found"),
        (["unheard"], "unknown tag 'unheard'; written by a newer version"),
        (["ref", 3], "number 3 is used before it is there"),
        (["ref", "3"], "a number is needed, '3' found"),
        (["ref", True], "a number is needed, True found"),
        (["float", "1.5"], "float '1.5'"),
        (["bytes", "no base 64!"], "bytes: "),
        (["Size", 1.5], "whole numbers are needed"),
        (["enum", ["global", f"{__name__}:Plain"], "RED"], "an enumeration is needed"),
        (["enum", ["global", f"{__name__}:Colour"], "BLUE"], "damaged, or written by a newer"),
        (["method", PLAIN, "__class__"], "Plain has no method '__class__'"),
        (["method", PLAIN, "goodbye"], "Plain has no method 'goodbye'"),
        (["meta", 0, "float32", False, -1], "shape"),
        (["meta", 0, "float32", False, 1 << 62], "shape"),
        (["meta", 0, "float33", False, 1], "damaged"),
        (["scalar", "F32", "00"], "damaged"),
        (["dict", [[["list"], 1]]], "damaged"),  # a key that cannot be one
        (["set", ["list"]], "damaged"),
        (["typed", 0, "<f4", [1], ["list"]], "an array of texts, times or objects is needed"),
        (["typed", 0, "O", [2], ["list", 1]], "damaged"),
        (["subclass", ["global", f"{__name__}:Plain"], ["tensor", "x"], {}], "class of tensors"),
        (["sparse", 0, True, False, 1, 2, 3], "places, values and the size"),
        (["defaultdict", "eval", []], "damaged"),
        (["deque", -1], "damaged"),
        (["tensor", 3], "a text is needed, 3 found"),
        (["tensor", "absent"], "damaged"),
        (["tuple", *[["range", 1, 2, 0]]], "damaged"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_doubtful_descriptions_are_refused_as_such(tree, why):
    with pytest.raises(SerializationError, match=r"^file: structure: ") as told:
        back(tree, {"x": np.ones(1, np.float32)})
    assert why in str(told.value)


def test_nesting_has_an_end():
    deep = 1
    for _ in range(DEPTH + 30):
        deep = ["tuple", deep]
    with pytest.raises(SerializationError, match="nested too deeply"):
        back(deep)
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError):
        back(["list", deep])


def test_names_that_are_not_allowed_are_refused_before_anything_is_made():
    with pytest.raises(SerializationError, match=r"Plain\. If you trust"):
        back(["list", ["unheard"], PLAIN], trust=False)
