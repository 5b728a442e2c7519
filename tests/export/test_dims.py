"""Which dimensions may change: how they are told, and what is wrong with what is told."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.export.dims import Dim


def f(x, y, d=None):
    return x.sum() + y.sum() + (d["a"][0].sum() if d else 0)


A = dt.ones(2, 3), dt.ones(4)
B = Dim("b", min=2, max=8)


@pytest.mark.parametrize("dynamic", [
    {"x": {0: "b"}, "y": {0: "t"}}, {"x": ("b", None), "y": ["t"]}, ({0: "b"}, {0: "t"}),
    [{-2: "b"}, {-1: "t"}], {0: {0: "b"}, 1: {0: "t"}},
    {"x": {0: Dim("b"), 1: 3}, "y": (Dim("t"),)},
])  # fmt: skip
def test_spellings(dynamic):
    program = dt.export(f, A, dynamic=dynamic)
    assert [str(v) for v in program.inputs] == ["x: float32[b, 3]", "y: float32[t]"]
    assert list(program.dims) == ["b", "t"]


def test_nested_and_unnamed():
    given = (*A, {"a": [dt.ones(5)]})
    program = dt.export(f, given, dynamic={"d": {"a": [{0: B}]}})
    assert str(program.inputs[2]) == "d_a_0: float32[b]" and program.dims == {"b": B}
    auto = dt.export(f, A, dynamic={"x": {0: Dim.AUTO, 1: Dim.STATIC}, "y": (Dim.DYNAMIC,)})
    assert list(auto.dims) == ["x_0", "y_0"]
    assert list(dt.export(f, A, dynamic=True).dims) == ["x_0", "x_1", "y_0"]
    assert not dt.export(f, A, dynamic=False).dims


@pytest.mark.parametrize(("dynamic", "told"), [
    ({"z": {0: "b"}}, "names 'z'; the arguments are 'x', 'y'"), ({"x": {5: "b"}}, "dimension 5"),
    ([{0: "b"}], "1 entries for 2 arguments"), ({"x": ("b",)}, "1 entries; the tensor has shape"),
    ({"x": {0: 7}}, "its size is 2"), ({"x": 3}, "of x is 3"), (3, "dynamic=3 given"),
    ({"x": {0: Dim("b", max=4)}, "y": {0: Dim("b", max=5)}}, "one name"), ({"x": {0: "1b"}}, "Dim"),
    ({"x": {"a": {0: "b"}}}, "dimension 'a'"),
])  # fmt: skip
def test_wrong_ones(dynamic, told):
    with pytest.raises(ConfigError, match=told):
        dt.export(f, A, dynamic=dynamic)


def test_ranges_of_names():
    assert Dim("b").range() == "at least 1" and B.range() == "2 to 8" and B.__name__ == "b"
    assert repr(B) == "Dim('b', min=2, max=8)" and hash(B) == hash(Dim("b"))
    for wrong in ({"min": 3, "max": 2}, {"min": -1}):
        with pytest.raises(ConfigError, match="Dim b"):
            Dim("b", **wrong)
