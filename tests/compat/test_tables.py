"""Functions under a face's parameters."""

from __future__ import annotations

import math
import operator

import pytest

from disttrain.compat.tables import functions, passing, rows


def test_functions_under_other_parameters():
    fn = passing("add", "x _name=None y=2", lambda x, y: (x, y))
    assert fn(1) == (1, 2) and fn(1, "sum", 3) == (1, 3) and fn(y=4, x=5) == (5, 4)
    assert fn.__name__ == "add" and list(fn.__signature__.parameters) == ["x", "name", "y"]
    with pytest.raises(TypeError, match="'z'"):
        fn(1, z=2)


def test_a_text_says_a_table():
    text = """F cos two_names:Other=pow | x;
        - add=add my_own | x
        y=1;
    """
    mine = object()
    found = list(rows(text, (operator, math), {"my_own": mine}))
    assert [r.word for r in found] == ["cos", "two_names", "add", "my_own"]
    assert [r.kind for r in found] == ["Cos", "Other", "Add", "MyOwn"]
    assert [r.fn for r in found] == [math.cos, operator.pow, operator.add, mine]
    assert [(r.mark, r.text) for r in found[1:3]] == [("F", "x"), ("-", "x y=1")]


def test_functions_of_a_table():
    made = functions("F cos; - add:Sum | x y=1", (math, operator), {"F": "floats", "-": None},
                     lambda *how: how, lambda *how: how, {"add": list}, {"cos": abs})  # fmt: skip
    assert made == {"cos": ("cos", "Cos", abs, "floats"),
                    "add": ("add", "Sum", operator.add, "x y=1", None, list)}  # fmt: skip
