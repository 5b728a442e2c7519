"""Hand-written codes: how their arguments are split, what they refuse, and how they read."""

from __future__ import annotations

import pytest

from disttrain.backends.device.codes.code import (
    Code,
    Field,
    Operand,
    Step,
    Steps,
    blocks,
    expect,
    filled,
    itemsize,
)
from disttrain.errors import DTypeError, ShapeError


def code(arrays: int = 2, strided: tuple[int, ...] = ()) -> Code:
    return Code("add", arrays, ("f64",), (1,), lambda o: Steps(()), print, strided)


def test_arguments_are_arrays_then_numbers():
    assert code().split((1, 2, 0.5)) == ((1, 2), (0.5,))
    assert code(arrays=-1).split((1, 2, 3, 0.5)) == ((1, 2, 3), (0.5,))
    with pytest.raises(TypeError, match="add: 2 arguments; 3 are needed"):
        code().split((1, 2))


def test_gaps_are_refused_where_they_are_not_expected():
    whole, gaps = Operand((2, 3), (12, 4), "float32"), Operand((2, 3), (24, 4), "float32")
    with pytest.raises(ShapeError, match="add: array 1"):
        code().plan([whole, gaps])
    assert code(strided=(1,)).plan([whole, gaps]) == Steps(())


def test_strides_of_single_and_of_no_elements_say_nothing():
    single, none = Operand((2, 1), (4, 999), "float32"), Operand((0, 3), (7, 7), "float32")
    assert code().plan([single, none]) == Steps(())


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("bfloat16", 2), ("bool", 1), ("float8_e5m2", 1), ("int64", 8), ("complex128", 16)],
)
def test_bytes_of_an_element(dtype, size):
    assert itemsize(dtype) == size


def test_types_that_are_not_expected_are_named():
    o = Operand((1,), (4,), "int32")
    expect("add", "x", o, ("int32",))
    with pytest.raises(DTypeError, match="add: x is int32; it must be float32 or float64"):
        expect("add", "x", o, ("float32", "float64"))


def test_blocks_serve_all():
    assert [blocks(n) for n in (0, 1, 256, 257)] == [0, 1, 1, 2]


def test_the_text_of_a_step():
    step = Step("add", filled("\n  $x += 1;\n", x="a.n"), (Field("n", "i64"),), {"n": 1}, 1, 128)
    text = step.text()
    assert text.startswith("struct add_args {\n  dt_i64 n;\n};")
    assert "__launch_bounds__(128, 1)" in text and text.endswith("{\n  a.n += 1;\n}")
    with pytest.raises(KeyError):
        filled("$x")
