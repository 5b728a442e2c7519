"""Numbers of the host go through operators as arrays of numpy do."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core.types import dtypes
from disttrain.errors import ShapeError
from disttrain.onnx.reading.numbers import RULES, Numbers, of_array, of_sizes
from disttrain.symbolic import Scope

GRID = np.arange(6).reshape(2, 3)


def numbers(values):
    array = np.asarray(values)
    return of_array(array, dtypes.of(array.dtype))


def check(found, want):
    want = np.asarray(want)
    assert found.shape == want.shape
    assert found.items == want.ravel().tolist()


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Mod", np.mod),
        ("Max", np.maximum),
        ("Min", np.minimum),
        ("Sum", np.add),
        ("Equal", np.equal),
        ("Less", np.less),
        ("Greater", np.greater),
        ("LessOrEqual", np.less_equal),
        ("GreaterOrEqual", np.greater_equal),
    ],
)
def test_two_broadcast(kind, how):
    check(RULES[kind](numbers(GRID), numbers([1, 2, 3])), how(GRID, [1, 2, 3]))
    check(RULES[kind](numbers(7), numbers(GRID + 1)), how(7, GRID + 1))


def test_integers_are_divided_towards_zero():
    check(RULES["Div"](numbers([7, -7, 7, -7]), numbers([2, 2, -2, -2])), [3, -3, -3, 3])
    check(RULES["Div"](numbers([1.0]), numbers([4.0])), [0.25])


def test_truth():
    a, b = numbers([True, True, False]), numbers([True, False, False])
    assert RULES["And"](a, b).items == [True, False, False]
    assert RULES["Or"](a, b).items == [True, True, False]
    assert RULES["Xor"](a, b).items == [False, True, False]
    assert RULES["Not"](a).items == [False, False, True]
    check(RULES["Where"](a, numbers([1, 2, 3]), numbers(9)), [1, 2, 9])


def test_single():
    check(RULES["Neg"](numbers(GRID)), -GRID)
    check(RULES["Abs"](numbers(-GRID)), GRID)
    check(RULES["Floor"](numbers([1.5, -1.5])), [1.0, -2.0])
    check(RULES["Ceil"](numbers([1.5, -1.5])), [2.0, -1.0])
    check(RULES["Sqrt"](numbers([9.0])), [3.0])
    assert type(RULES["Floor"](numbers([1.5])).items[0]) is float


def test_casts():
    assert RULES["Cast"](numbers([1.9, -1.9]), to=7).items == [1, -1]
    assert RULES["Cast"](numbers([0, 2]), to=9).items == [False, True]
    found = RULES["Cast"](numbers([2**24 + 1]), to=1)
    assert found.items == [float(2**24)] and found.kind == dtypes.float32


def test_what_rearranges():
    g = numbers(GRID)
    check(RULES["Gather"](g, numbers([1, 0]), axis=1), GRID[:, [1, 0]])
    check(RULES["Gather"](g, numbers(-1)), GRID[-1])
    check(RULES["Slice"](g, numbers([1]), numbers([2**62]), numbers([1])), GRID[:, 1:])
    check(
        RULES["Slice"](g, numbers([-1]), numbers([-(2**62)]), numbers([1]), numbers([-1])),
        GRID[:, ::-1],
    )
    check(RULES["Slice"](g, (0,), (1,)), GRID[:1])
    check(RULES["Concat"](g, g, axis=1), np.concatenate([GRID, GRID], 1))
    check(RULES["Unsqueeze"](g, numbers([0, -1])), GRID[None, :, :, None])
    check(RULES["Squeeze"](numbers([[1, 2]]), numbers([0])), [1, 2])
    check(RULES["Squeeze"](numbers([[1]])), 1)
    check(RULES["Reshape"](g, numbers([3, -1])), GRID.reshape(3, 2))
    check(RULES["Transpose"](g), GRID.T)
    check(RULES["Flatten"](g, axis=0), GRID.reshape(1, 6))
    check(RULES["Expand"](numbers([1, 2]), numbers([2, 2])), [[1, 2], [1, 2]])
    check(RULES["Tile"](numbers([1, 2]), numbers([2])), [1, 2, 1, 2])


def test_what_reduces_and_what_makes():
    check(RULES["ReduceProd"](numbers([2, 3, 4])), [24])
    check(RULES["ReduceSum"](numbers([2, 3, 4]), keepdims=0), 9)
    check(RULES["ReduceMax"](numbers([2, 4, 3])), [4])
    check(RULES["ReduceMin"](numbers([2, 4, 3])), [2])
    with pytest.raises(ShapeError, match="over all axes"):
        RULES["ReduceSum"](numbers(GRID), numbers([0]))
    check(RULES["Range"](numbers(2), numbers(9), numbers(3)), [2, 5, 8])
    check(RULES["Range"](numbers(2), numbers(0), numbers(1)), np.zeros(0))
    check(RULES["ConstantOfShape"](numbers([2]), value=np.array([7])), [7, 7])
    assert RULES["ConstantOfShape"](numbers([2])).kind == dtypes.float32


def test_sizes_of_a_symbolic_run_stay_expressions():
    scope = Scope()
    sizes = of_sizes([scope.symbol(4), 3])
    out = RULES["Concat"](
        RULES["Mul"](RULES["Gather"](sizes, numbers([0])), numbers([2])), numbers([-1]), axis=0
    )
    assert out.items[0].text == "(2 * s0)" or "s0" in out.items[0].text
    assert not scope.relations


def test_one_is_one():
    assert Numbers([3], (1,), dtypes.int64).one() == 3
    with pytest.raises(ShapeError, match="2 numbers"):
        of_sizes([1, 2]).one()


def test_a_zero_of_a_shape_keeps_a_size():
    a = Numbers(range(6), (2, 3), dtypes.int64)
    assert RULES["Reshape"](a, of_sizes([0, 3])).shape == (2, 3)
    assert RULES["Reshape"](a, of_sizes([-1, 1])).shape == (6, 1)
    empty = Numbers([], (0, 3), dtypes.int64)
    assert RULES["Reshape"](empty, of_sizes([3, 0]), allowzero=1).shape == (3, 0)
