"""Values taken apart: what stands for each in a file, which names tensors get, what is refused."""

from __future__ import annotations

import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import SerializationError
from disttrain.serialize.structure import DEPTH, encode


class Colour(enum.Enum):
    RED = 1


HERE = __name__


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (None, None),
        (True, True),
        (2.5, 2.5),
        (math.nan, ["float", "nan"]),
        (-math.inf, ["float", "-inf"]),
        ((1 << 64) - 1, (1 << 64) - 1),
        (1 << 64, ["int", "0x10000000000000000"]),
        (-(1 << 63) - 1, ["int", "-0x8000000000000001"]),
        ({"a": 1}, {"a": 1}),
        ({1: "a"}, ["dict", [[1, "a"]]]),
        ([], ["list"]),
        ((1, "x"), ["tuple", 1, "x"]),
        ({3}, ["set", 3]),
        (frozenset({3}), ["frozenset", 3]),
        (b"\xff\x00", ["bytes", "/wA="]),
        (range(1, 9, 2), ["range", 1, 9, 2]),
        (slice(None, 3), ["slice", None, 3, None]),
        (..., ["..."]),
        (complex(1, math.inf), ["complex", 1.0, ["float", "inf"]]),
        (Counter("aab"), ["Counter", [["a", 2], ["b", 1]]]),
        (deque([1], 3), ["deque", 3, 1]),
        (defaultdict(list, {"a": 1}), ["defaultdict", "list", [["a", 1]]]),
        (defaultdict(None), ["defaultdict", None, []]),
        (OrderedDict(a=1), ["OrderedDict", [["a", 1]]]),
        (dt.float16, ["dtype", "float16"]),
        (dt.device("cpu"), ["device", "cpu"]),
        (dt.Size((2, 3)), ["Size", 2, 3]),
        (np.float32(1.0), ["scalar", "F32", "0000803f"]),
        (Path("a/b"), ["path", "a/b"]),
        (Colour.RED, ["enum", ["global", f"{HERE}:Colour"], "RED"]),
        (dt.nn.Linear, ["global", "disttrain.nn.modules.linear:Linear"]),
    ],
    ids=lambda v: repr(v)[:40],
)
def test_what_stands_for_a_value(value, tree):
    made = encode(value)
    assert made.tree == tree and made.arrays == {}
    json.dumps(made.tree, allow_nan=False)


def test_tensors_are_named_by_their_paths():
    made = encode({"layer": {"weight": dt.ones(2)}, "list": [np.zeros(1)], "n": dt.tensor(1)})
    assert sorted(made.arrays) == ["layer.weight", "list.0", "n"]
    assert made.tree["layer"] == {"weight": ["tensor", "layer.weight"]}
    assert made.tree["list"] == ["list", ["array", "list.0"]]
    assert list(encode(dt.ones(2)).arrays) == ["tensor"]
    assert encode(dt.ones(2, requires_grad=True)).tree == ["leaf", "tensor"]


def test_names_that_are_taken_or_stand_for_something_else_are_changed():
    a, b = dt.zeros(1), dt.ones(1)
    made = encode({"a.b": a, "a": {"b": b}, "__metadata__": a + 2, "\ud800": a + 3})
    assert len(made.arrays) == 4 and "__metadata__" not in made.arrays
    assert {v.item() for v in made.arrays.values()} == {0.0, 1.0, 2.0, 3.0}
    assert all(name.encode() for name in made.arrays)
    (again,) = set(made.arrays) - {made.tree["a.b"][1], made.tree["__metadata__"][1],
                                  made.tree["\ud800"][1]}  # fmt: skip
    assert made.tree["a"]["b"] == ["tensor", again] and made.arrays[again].item() == 1.0


def test_one_tensor_has_one_name_and_one_container_one_number():
    t, inner = dt.ones(1), [1]
    made = encode({"x": t, "y": t, "p": inner, "q": inner})
    assert list(made.arrays) == ["x"] and made.tree["y"] == ["tensor", "x"]
    assert made.tree["p"][0] == "def" and made.tree["q"] == ["ref", made.tree["p"][1]]
    equal = encode({"p": [1], "q": [1]}).tree
    assert equal == {"p": ["list", 1], "q": ["list", 1]}
    circle = []
    circle.append(circle)
    assert encode(circle).tree == ["def", 0, ["list", ["ref", 0]]]


def test_numbers_are_kept_little_endian_and_other_arrays_as_bytes():
    big = np.arange(3, dtype=">i4")
    assert encode(big).arrays["tensor"].dtype == np.dtype("<i4")
    made = encode(np.array([["ab", "c"]]))
    assert made.tree[:4] == ["typed", 0, "<U2", [1, 2]]
    assert made.arrays["tensor"].tobytes() == np.array(["ab", "c"]).tobytes()
    objects = encode(np.array([1, "x", None], object)).tree
    assert objects == ["typed", 0, "O", [3], ["list", 1, "x", None]]
    moment = np.datetime64("2020-01-01")
    assert encode(moment).tree[0] == "item"


def test_special_tensors_say_what_they_are():
    assert encode(dt.empty(2, 3, device="meta")).tree == ["meta", 0, "float32", False, 2, 3]
    kind, node = encode(nn.Parameter(dt.ones(1))).tree[1:3]
    assert kind == ["global", "disttrain.nn.parameter:Parameter"] and node == ["leaf", "tensor"]
    sparse = encode(dt.sparse_coo_tensor([[1]], [2.0], (3,))).tree
    assert sparse[0] == "sparse" and sparse[4:] == [["tensor", "0"], ["tensor", "1"], ["Size", 3]]


def test_what_cannot_be_saved_is_told_with_its_place():
    with pytest.raises(SerializationError, match=r"save: obj\['a'\]\[0\] is .*lambda"):
        encode({"a": [lambda: 1]})
    with pytest.raises(SerializationError, match=r"obj\['x'\] is an array of .*Convert it"):
        encode({"x": np.zeros(1, [("a", "i4")])})
    with pytest.raises(SerializationError, match=r"it is a key of obj\['d'\]"):
        encode({"d": {(lambda: 1): 2}})
    nested = 1
    for _ in range(DEPTH + 2):
        nested = [nested]
    with pytest.raises(SerializationError, match=f"more than {DEPTH} containers inside each other"):
        encode(nested)
    encode(nested[0])  # one less
