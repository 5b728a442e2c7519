"""Tensors side by side, in combination, as triangles and powers: against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.errors import DTypeError, ShapeError
from disttrain.ops.functions import arrangement

A, B = np.arange(3.0), np.arange(3.0) + 5


@pytest.mark.parametrize("name", ["column_stack", "dstack", "row_stack"])
@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1, 1)])
def test_side_by_side(name, shape):
    given = [A.reshape(shape), B.reshape(shape)]
    got = getattr(arrangement, name)([wrap(a) for a in given])
    np.testing.assert_array_equal(got.array, getattr(np, name.replace("row_", "v"))(given))


def test_combinations():
    got = arrangement.combinations(wrap(A), 2, with_replacement=True)
    assert got.tolist() == [list(c) for c in itertools.combinations_with_replacement(A, 2)]
    assert arrangement.combinations(wrap(A), 0).shape == (0,)
    rows = arrangement.cartesian_prod(wrap(A), wrap(B[:2]))
    assert rows.tolist() == [list(p) for p in itertools.product(A, B[:2])]
    with pytest.raises(ShapeError, match="1D vector"):
        arrangement.combinations(wrap(np.zeros((2, 2))))


def test_block_diag():
    got = arrangement.block_diag(wrap(np.ones((2, 1))), wrap(np.array(3)), wrap(A[:2]))
    assert got.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0, 1]]
    assert arrangement.block_diag().shape == (1, 0)


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("n", [None, 0, 1, 4])
def test_vander(n, increasing):
    got = arrangement.vander(wrap(B), n, increasing)
    np.testing.assert_allclose(got.array, np.vander(B, n, increasing))


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_triangles(offset):
    np.testing.assert_array_equal(
        arrangement.tril_indices(3, 4, offset).array, np.tril_indices(3, offset, 4)
    )
    np.testing.assert_array_equal(
        arrangement.triu_indices(3, 4, offset).array, np.triu_indices(3, offset, 4)
    )
    with pytest.raises(DTypeError, match="not implemented"):
        arrangement.tril_indices(3, 3, dtype=dtypes.float32)


def test_places_and_numbers():
    places = np.array([[0, 7], [23, 12]])
    for got, want in zip(
        arrangement.unravel_index(wrap(places), (2, 3, 4)),
        np.unravel_index(places, (2, 3, 4)),
        strict=True,
    ):
        np.testing.assert_array_equal(got.array, want)
    got = arrangement.polar(wrap(B), wrap(A))
    np.testing.assert_allclose(got.array, B * np.exp(1j * A))
    assert arrangement.rsub(wrap(A), 1, alpha=2).tolist() == [1, -1, -3]
    assert arrangement.scalar_tensor(2).dtype is dtypes.float32
    assert arrangement.inclusive_range(1, 2, 0.5).tolist() == [1, 1.5, 2]
    with pytest.raises(ShapeError, match="step must be nonzero"):
        arrangement.inclusive_range(1, 2, -1)


def test_memory():
    assert arrangement.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert arrangement.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    with pytest.raises(ShapeError, match="no permutation"):
        arrangement.empty_permuted((2, 3), (0, 0))
