"""A gradient fitted to what it is of: sums undo broadcasting, and nothing is shared."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.core.backward.fit import apart, fit_array, sum_to_array
from disttrain.errors import ShapeError

NODE = SimpleNamespace(name=lambda: "MulBackward")


@pytest.mark.parametrize(
    ("have", "want"),
    [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 3), (1, 3)), ((4, 2, 3), (2, 1)), ((2, 3), ()),
     ((0, 3), (3,))],
)  # fmt: skip
def test_sums_undo_broadcasting(have, want):
    g = np.arange(np.prod(have), dtype=np.float64).reshape(have)
    lead = g.ndim - len(want)
    rest = g.sum(tuple(range(lead)))
    axes = tuple(i for i, n in enumerate(want) if n == 1)
    np.testing.assert_array_equal(sum_to_array(g, want), rest.sum(axes, keepdims=True))


def test_the_element_type_is_that_of_the_value():
    g = fit_array(NODE, np.ones((2, 3)), (3,), np.dtype(np.float32))
    assert (g.dtype, g.tolist()) == (np.float32, [2, 2, 2])
    assert fit_array(NODE, np.array([1 + 2j]), (1,), np.dtype(float)).tolist() == [1.0]
    assert type(fit_array(NODE, np.float64(3), (), np.dtype(float))) is np.ndarray


@pytest.mark.parametrize(("have", "want"), [((2, 3), (2,)), ((3,), (2, 3)), ((2,), (3,))])
def test_a_wrong_shape_is_refused_with_both_shapes_and_the_node(have, want):
    with pytest.raises(ShapeError, match="reached MulBackward") as info:
        fit_array(NODE, np.ones(have), want, np.dtype(float))
    assert str(list(have)) in str(info.value) and str(list(want)) in str(info.value)


def test_what_is_kept_or_comes_twice_is_copied():
    a, b, c = np.ones(1), np.ones(1), np.ones(1)
    out = apart([a, b, b, None, None], [a, c], np.copy)
    assert [x is y for x, y in zip(out, [a, b, b, None, None], strict=True)] == [
        False, True, False, True, True,
    ]  # fmt: skip
