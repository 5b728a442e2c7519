"""Layouts of what rearranges: which dimensions go over into which."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.layouts.shape import RULES


def of(rule: str, shape: tuple, *args: object, **params: object) -> tuple:
    found = RULES[rule](np.zeros(shape), *args, **params)
    return found.ins, found.outs


@pytest.mark.parametrize(
    ("old", "new", "names", "outs", "even"),
    [
        ((4, 6), (4, 6), (0, 1), (0, 1), {}),
        ((4, 6), (24,), (0, None), (0,), {0: 4}),
        ((24,), (4, -1), (0,), (0, None), {0: 4}),
        ((4, 6), (4, 2, 3), (0, 1), (0, 1, None), {1: 2}),
        ((1, 6), (6,), (None, 1), (1,), {}),
        ((0, 6), (6, 0), (None, None), (None, None), {}),
    ],
)
def test_reshape(old, new, names, outs, even):
    found = RULES["reshape"](np.zeros(old), new)
    assert (found.ins, found.outs, found.even) == ((names,), (outs,), even)


def test_permute_and_expand():
    assert of("permute", (2, 3, 4), (2, 0, 1)) == (((0, 1, 2),), ((2, 0, 1),))
    assert of("expand", (1, 3), (5, 4, 3)) == (((None, 2),), ((None, None, 2),))


@pytest.mark.parametrize(
    ("index", "own", "out"),
    [
        ((0,), (None, 1, 2), (1, 2)),
        ((slice(None), None), (0, 1, 2), (0, None, 1, 2)),
        ((slice(1, None), ...), (None, 1, 2), (None, 1, 2)),
        ((..., 1), (0, 1, None), (0, 1)),
    ],
)
def test_an_index_keeps_what_it_takes_whole(index, own, out):
    assert of("getitem", (2, 3, 4), index) == ((own,), (out,))
    turned = RULES["embed"](np.zeros((1,)), index, (2, 3, 4))
    assert (turned.ins, turned.outs) == ((out,), (own,))


def test_arrays_as_indices_have_no_layout():
    assert RULES["getitem"](np.zeros((2, 3)), (np.array([0]),)) is None


def test_what_is_joined_or_parted_is_whole():
    found = RULES["cat"](np.zeros((2, 3)), np.zeros((2, 5)), dim=1, sizes=(3, 5))
    assert (found.ins, found.outs) == (((0, None),) * 2, ((0, None),))
    assert of("split", (2, 3), dim=1, sizes=(1, 2)) == (((0, None),), ((0, None),) * 2)
    assert of("unbind", (2, 3), dim=0) == (((None, 1),), ((1,),) * 2)


def test_padding_by_zeros_alone_is_linear():
    a, widths = np.zeros((2, 3)), ((0, 0), (1, 0))
    zero, one = RULES["pad_constant"](a, widths), RULES["pad_constant"](a, widths, 1.0)
    assert zero.ins == one.ins == ((0, None),)
    assert zero.linear and not one.linear
