"""Windows as columns: by hand, and added back."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.device.codes.code import Operand
from disttrain.backends.device.codes.columns import COLUMNS, UNCOLUMNS, numbers
from disttrain.errors import ShapeError

ONE = numbers((2,), (3,), (1,), (0,), (1,))  # windows of two, of four places


def test_numbers_have_three_of_each():
    assert numbers((2,), (3,), (4,), (5,), (6,)) == (1, 1, 2, 1, 1, 3, 1, 1, 4, 0, 0, 5, 1, 1, 6)


def test_columns_by_hand():
    x, out = np.arange(4.0).reshape(1, 1, 1, 1, 4), np.full((1, 2, 3), 9.0)
    COLUMNS.reference(x, out, *ONE)
    assert out.tolist() == [[[0, 1, 2], [1, 2, 3]]]


def test_padding_and_strides_by_hand():
    x, out = np.arange(1.0, 5).reshape(1, 1, 1, 1, 4), np.full((1, 2, 3), 9.0)
    COLUMNS.reference(x, out, *numbers((2,), (3,), (2,), (1,), (1,)))
    assert out.tolist() == [[[0, 2, 4], [1, 3, 0]]]


def test_columns_are_added_back():
    columns, out = np.ones((1, 2, 3)), np.full((1, 1, 1, 1, 4), 9.0)
    UNCOLUMNS.reference(columns, out, *ONE)
    assert out.reshape(-1).tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("given", [((2,), 2, 1), ((3, 3), 1, 2), ((2, 1, 2), 3, 1)])
def test_one_is_the_other_transposed(given):
    """<columns(x), y> == <x, uncolumns(y)>: both say the same places."""
    kernel, stride, dilation = given
    nd = len(kernel)
    image = (1,) * (3 - nd) + (7, 6, 5)[:nd]
    sizes = [
        (n + 2 - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(image[3 - nd :], kernel)
    ]
    of = numbers(kernel, tuple(sizes), (stride,) * nd, (1,) * nd, (dilation,) * nd)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, *image))
    y = rng.standard_normal((2, 3 * int(np.prod(kernel)), int(np.prod(sizes))))
    columns, back = np.empty_like(y), np.empty_like(x)
    COLUMNS.reference(x, columns, *of)
    UNCOLUMNS.reference(y, back, *of)
    assert np.vdot(columns, y) == pytest.approx(np.vdot(x, back))


def test_shapes_that_do_not_belong_together_are_refused():
    image, columns = np.zeros((1, 1, 1, 4)), np.zeros((1, 2, 3))
    with pytest.raises(ShapeError, match="do not belong together"):
        COLUMNS.plan([Operand.of(image), Operand.of(columns)])


def test_dilation_by_hand():
    x, out = np.arange(5.0).reshape(1, 1, 1, 1, 5), np.full((1, 2, 3), 9.0)
    COLUMNS.reference(x, out, *numbers((2,), (3,), (1,), (0,), (2,)))
    assert out.tolist() == [[[0, 1, 2], [2, 3, 4]]]
