"""Numbers in instructions that depend on sizes: annotated by a symbolic run, and put in again."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.compile.sized import Unlike, annotate, is_sized, numbers, substitute, text_of
from disttrain.symbolic import Scope


def test_numbers_get_expressions_and_stay_the_numbers_that_they_are():
    scope = Scope()
    n = scope.symbol(5)
    was = {"shape": (5, 4, 20), "index": (slice(0, 4), None), "scale": 0.2, "kind": np.dtype("f")}
    now = {**was, "shape": (n, 4, n * 4), "index": (slice(0, n - 1), None), "scale": 1 / n}
    found = annotate(was, now)
    assert found == was
    assert [x.text for x in numbers(found)] == ["s0", "(4*s0)", "(s0 - 1)", "(1 / s0)"]
    assert is_sized(found)
    assert not is_sized(was)
    values = {"s0": 7, "(4*s0)": 28, "(s0 - 1)": 6, "(1 / s0)": 1 / 7}
    again = substitute(found, values)
    assert again == {**was, "shape": (7, 4, 28), "index": (slice(0, 6), None), "scale": 1 / 7}
    assert not is_sized(again)


def test_what_holds_no_size_stays_the_same_object():
    params = {"dims": (0, 1), "of": [1, 2]}
    assert annotate(params, {"dims": (0, 1), "of": [1, 2]}) is params
    assert substitute(params, {}) is params


@pytest.mark.parametrize(
    ("was", "now"),
    [(3, 4), ((1, 2), (1,)), ({"a": 1}, {"b": 1}), (1, True), (0.0, -0.0), (object(), object()),
     (np.ones(2), np.zeros(2))],
)  # fmt: skip
def test_what_differs_is_no_capture_of_the_program(was, now):
    with pytest.raises(Unlike):
        annotate(was, now)


def test_a_symbol_must_have_the_number_that_was_captured():
    with pytest.raises(Unlike):
        annotate(6, Scope().symbol(5))
    with pytest.raises(Unlike):
        annotate(5.0, Scope().symbol(5))


def test_texts():
    found = annotate((5, 4), (Scope().symbol(5), 4))
    assert [text_of(n) for n in found] == ["s0", "4"]
