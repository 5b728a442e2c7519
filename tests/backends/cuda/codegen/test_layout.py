"""Strides made fit for code: each held against the addresses that numpy computes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.backends.cuda.codegen.layout import (
    Axes,
    Operand,
    common_shape,
    divider,
    memory_order,
    merge,
    reach,
    spread,
)
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Store
from disttrain.errors import DTypeError, ShapeError


def kernel(*arrays):
    return Kernel("k", arrays, (Loop((Store(arrays[-1].name, var(arrays[0].name)),)),))


X = Array("x", "float32")
OUT = Array("out", "float32", writes=True)


def addresses(sizes, strides):
    """Of all elements, in the order of the axes."""
    return [sum(i * s for i, s in zip(at, strides)) for at in np.ndindex(*sizes)]


def test_full_arrays_meet_in_one_shape():
    k = kernel(X, OUT)
    ops = [Operand((3, 1), (4, 4), "float32"), Operand((1, 5), (4, 4), "float32")]
    assert common_shape(k, ops) == (3, 5)
    zero = Operand((), (), "float32")
    assert common_shape(k, [zero, zero]) == (1,)


def test_wrong_arguments_say_which():
    k = kernel(X, OUT)
    good = Operand((3,), (4,), "float32")
    with pytest.raises(TypeError, match="kernel k: 1 arrays, 2 needed"):
        common_shape(k, [good])
    with pytest.raises(DTypeError, match="out is float64; an array of float32"):
        common_shape(k, [good, Operand((3,), (8,), "float64")])
    with pytest.raises(ShapeError, match=r"\(3,\), \(4,\); they must be equal"):
        common_shape(k, [good, Operand((4,), (4,), "float32")])


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (1, 1), (3, 4), ()])
def test_a_broadcast_operand_has_numpy_s_strides(shape):
    array = np.zeros(shape, np.float32)
    want = np.broadcast_to(array, (2, 3, 4)).strides
    assert spread(kernel(X, OUT), X, Operand.of(array), (2, 3, 4)) == want


def test_what_is_written_is_not_broadcast():
    k = kernel(X, OUT)
    with pytest.raises(ShapeError, match=r"out \(full\) is shape \(1, 4\)"):
        spread(k, OUT, Operand((1, 4), (16, 4), "float32"), (3, 4))
    assert spread(k, OUT, Operand((), (), "float32"), (1,)) == (0,)


def test_row_col_and_one_arrays_serve_their_axes():
    row, col, one = (Array(s, "float32", s) for s in ("row", "col", "one"))
    k = kernel(X, row, col, one, OUT)
    shape = (2, 3, 4)
    assert spread(k, row, Operand((2, 3), (24, 8), "float32"), shape) == (24, 8, 0)
    assert spread(k, row, Operand((6,), (4,), "float32"), shape) == (12, 4, 0)  # dense: any shape
    assert spread(k, row, Operand((2, 3, 1), (48, 16, 4), "float32"), shape) == (48, 16, 0)
    assert spread(k, col, Operand((4,), (8,), "float32"), shape) == (0, 0, 8)
    assert spread(k, col, Operand((1, 4), (0, -4), "float32"), shape) == (0, 0, -4)
    assert spread(k, one, Operand((1, 1), (4, 4), "float32"), shape) == (0, 0, 0)


def test_what_cannot_serve_is_refused():
    row = Array("r", "float32", "row")
    k = kernel(X, row, OUT)
    for bad in (Operand((5,), (4,), "float32"), Operand((3, 2), (4, 12), "float32")):
        with pytest.raises(ShapeError, match=r"r \(row\) is shape"):
            spread(k, row, bad, (2, 3, 4))


def test_merged_axes_reach_the_same_elements_in_the_same_order():
    rng = np.random.default_rng(0)
    for _ in range(50):
        shape = tuple(int(n) for n in rng.integers(1, 4, 4))
        arrays = []
        for _ in range(2):
            order = rng.permutation(4)
            base = np.zeros([shape[i] for i in order], np.float32)
            arrays.append(base.transpose(np.argsort(order)))
        arrays.append(np.broadcast_to(np.zeros((1, *shape[1:]), np.float32), shape))
        strides = [a.strides for a in arrays]
        axes = memory_order(shape, strides[0])
        merged = merge(shape, strides, axes)
        assert 1 not in merged.sizes
        for mine, got in zip(strides, merged.strides):
            walked = [tuple(seq[a] for a in axes) for seq in (shape, mine)]
            assert addresses(merged.sizes, got) == addresses(*walked)


def test_contiguous_arrays_become_one_axis_and_others_do_not():
    dense = (48, 16, 4)
    assert merge((2, 3, 4), [dense, dense], (0, 1, 2)) == Axes((24,), ((4,), (4,)))
    gap = (96, 16, 4)
    assert merge((2, 3, 4), [dense, gap], (0, 1, 2)) == Axes((2, 12), ((48, 4), (96, 4)))
    assert merge((1, 1), [(4, 4)], (0, 1)) == Axes((), ((),))


def test_axes_are_walked_from_the_longest_stride_to_the_shortest():
    assert memory_order((2, 3, 4), (4, -32, 8)) == [1, 2, 0]
    assert memory_order((2, 2), (4, 4)) == [0, 1]  # equal ones stay as they were


def test_reach_is_how_far_the_elements_lie_apart():
    a = np.zeros((5, 6), np.float32)[::2, ::-3]
    ends = addresses(a.shape, a.strides)
    assert max(ends) - min(ends) == reach(a.shape, a.strides) == 2 * 48 + 1 * 12
    assert reach((1, 1), (400, 400)) == 0


def test_division_by_multiplication_is_exact_up_to_2_to_the_31():
    rng = np.random.default_rng(1)
    divisors = [1, 2, 3, 5, 7, 10, 641, 2**16 - 1, 2**16, 2**16 + 1, 2**30, 2**31 - 1]
    divisors += [int(d) for d in rng.integers(1, 2**31, 50)]
    for d in divisors:
        multiplier, shift = divider(d)
        assert 0 <= multiplier < 2**32 and 0 <= shift <= 31, d
        numbers = {0, 1, d - 1, d, d + 1, 2 * d - 1, 2**31 - 1, (2**31 - 1) // d * d - 1}
        numbers |= {int(n) for n in rng.integers(0, 2**31, 20)}
        for n in (n for n in numbers if 0 <= n < 2**31):
            assert (((n * multiplier) >> 32) + n) >> shift == n // d, (n, d)


def test_small_divisions_are_exact_throughout():
    for d, n in itertools.product(range(1, 20), range(100)):
        multiplier, shift = divider(d)
        assert (((n * multiplier) >> 32) + n) >> shift == n // d
