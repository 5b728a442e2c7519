"""Functions of tensors as functions of what a program has: rows, types that meet, failures."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import Tensor
from disttrain.arrays import elements, order, reductions, shapes
from disttrain.arrays.lifting import Lifting
from disttrain.errors import ShapeError

LIFT = Lifting()
NAMES = LIFT.table(
    """
. min max -> same: clip!; . | where:own -> inexact: mean; arrays* -> same: concatenate; . |
initial:own | where:own -> summed: sum; . v | sorter:own -> same: searchsorted
""",
    (elements, reductions, shapes, order),
)


class Own:
    """A program's array."""

    def __init__(self, value, weak=False):
        self.value, self.weak = value, weak


class OwnLifting(Lifting):
    own, module = Own, "program"
    give = staticmethod(Own)

    def take(self, x):
        return x.value, x.weak


def test_operands_meet():
    out = NAMES["clip"](np.int8([1, 5, 9]), 2, dt.tensor([4.5, 6.5, 7.5]))
    assert out.dtype is dt.float32 and out.tolist() == [2.0, 5.0, 7.5]
    assert NAMES["concatenate"]([np.int8([1]), np.uint8([2])]).dtype is dt.int16
    assert NAMES["mean"](np.int32([1, 2])).item() == 1.5
    assert NAMES["sum"](np.int8([100, 100]), dtype="int16").item() == 200


def test_wrong_calls():
    for args, given, error in (
        ((), {"out": 1}, "out"), ((1, 2, 3, 4), {}, "positional"), ((1,), {"arr": 2}, "multiple"),
        (("a",), {}, "scalar"),
    ):  # fmt: skip
        with pytest.raises((TypeError, NotImplementedError), match=error):
            NAMES["clip"](*args, **given)
    with pytest.raises(TypeError, match="sequence"):
        NAMES["concatenate"](1)


def test_own_arrays():
    lift = OwnLifting()
    add = lift.binary("add", dt.add)
    one, two = Own(dt.ones(2), True), Own(dt.ones(2, dtype=dt.float16))
    assert add(one, 2.0).weak and not add(one, two).weak
    assert add(one, two).value.dtype is dt.float16
    assert add.__module__ == "program"
    with pytest.raises(ShapeError):
        add(one, np.ones(3))
    assert not lift.unary("exp", dt.exp, strong=True)(one).weak


def _filled(x: Tensor, dtype: object = None) -> Tensor:
    return dt.ones_like(x)


def test_annotations():
    fn = OwnLifting().annotated("filled", _filled)
    assert fn(Own(dt.zeros(2), True)).weak
    assert not fn(Own(dt.zeros(2), True), dtype="float32").weak


def test_arrays_of_sequences():
    assert LIFT.made([[1, 2], [3, dt.tensor(4.5)]], None)[0].tolist() == [[1, 2], [3, 4.5]]
    assert LIFT.made([], None)[0].dtype is dt.float64 and LIFT.made(3, None)[1]
    with pytest.raises(OverflowError):
        LIFT.made(300, np.dtype("uint8"))
