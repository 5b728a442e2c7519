"""What rules write with."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.export import Size
from disttrain.onnx.writing.types import FLOAT, INT64, Ref, Unmapped
from disttrain.onnx.writing.writer import RULES, Writer, rule


def source(*shape):
    x = Ref("x", FLOAT, tuple(shape))
    found = {str(n): (x, i) for i, n in enumerate(shape) if isinstance(n, Size)}
    return x, Writer(21, sources=found, taken={"x"})


def test_equal_constants_are_one():
    _, w = source(2)
    assert w.constant(1.0, FLOAT) is w.constant(1.0, FLOAT)
    assert w.constant(1.0, FLOAT) is not w.constant(1, INT64)
    assert w.constant([0.0], FLOAT) is not w.constant(0.0, FLOAT)
    assert w.constant(0.0, FLOAT) is not w.constant(-0.0, FLOAT)


def test_a_shape_that_the_input_has_is_read_by_reshape_itself():
    x, w = source(Size("n"), Size("k"), 6)
    w.reshape(x, (Size("n"), Size("k"), 2, 3))
    assert [op.kind for op in w.ops] == ["Reshape"]
    assert w.values[w.ops[0].inputs[1]].tolist() == [0, 0, 2, 3]
    assert w.reshape(x, x.shape) is x


def test_sizes_in_a_row():
    _, w = source(Size("n"), 3)
    assert w.values[w.ints([2, 3]).name].tolist() == [2, 3]
    w.ints([2, Size("n"), 4])
    assert [op.kind for op in w.ops] == ["Shape", "Concat"]


def test_numbers_are_known_where_they_are_constants():
    x, w = source(2)
    assert w.known(x) is None and w.known(3) is None
    assert w.known(w.constant([1, 2], INT64)).tolist() == [1, 2]
    w.later["late"] = lambda: np.ones(2)
    assert w.known(Ref("late", FLOAT)).tolist() == [1, 1]


def test_names_are_given_once():
    _, w = source(2)
    assert [w.fresh("a"), w.fresh("a"), w.fresh("x")] == ["a", "a_1", "x_1"]


def test_what_is_too_new_is_told():
    with pytest.raises(Unmapped, match="it needs opset_version=23 or newer"):
        Writer(21).needs(23, "it")


def test_a_primitive_has_one_rule():
    with pytest.raises(AssertionError):
        rule("exp")(RULES["exp"])
