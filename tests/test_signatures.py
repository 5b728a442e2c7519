"""Texts as parameters of functions."""

from __future__ import annotations

import pytest

from disttrain.signatures import Parameters

ROW = Parameters("split", "value! parts axis=0 _num=None mode='x'")


def test_a_text_says_the_parameters():
    assert ROW.names == ["value", "parts", "axis", "num", "mode"]
    assert ROW.passed == ["value", "parts", "axis", "mode"]
    assert ROW.marked("!") == ["value"]
    assert str(ROW.signature) == "(value, parts, axis=0, num=None, mode='x')"


def test_arguments_by_name():
    found = ROW.bound((1,), {"parts": 2, "axis": 3})
    assert found == {"value": 1, "parts": 2, "axis": 3, "num": None, "mode": "x"}
    assert ROW.values((1, 2), {}) == [1, 2, 0, None, "x"]
    assert ROW.values((1,), {"mode": "y", "parts": 2}) == [1, 2, 0, None, "y"]


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((1,), {}, "missing a required argument: 'parts'"),
    ((1, 2), {"other": 1}, "unexpected keyword argument 'other'"),
    ((1,), {"other": 1}, "missing a required argument: 'parts'"),
    ((1, 2), {"value": 1}, "multiple values for argument 'value'"),
    ((1, 2, 3, 4, 5, 6), {}, "too many positional arguments"),
])  # fmt: skip
def test_what_does_not_go_with_them(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        ROW.values(args, kwargs)
