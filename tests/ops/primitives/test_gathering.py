"""Elements taken by places, and put there."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import gathering as ga

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 5))


def test_rows_are_taken_and_their_gradients_spread():
    index = np.array([3, 0, 3])
    assert (ga.take.forward(A, index, dim=0) == A[index]).all()
    assert (ga.take.forward(A, index, dim=1) == A[:, index]).all()
    wanted = np.zeros_like(A)
    g = RNG.normal(size=(3, 5))
    np.add.at(wanted, index, g)
    np.testing.assert_allclose(ga.spread.forward(g, index, dim=0, shape=A.shape), wanted)


@pytest.mark.parametrize("dim", [0, 1])
def test_elements_along_a_dimension(dim):
    index = RNG.integers(0, A.shape[dim], (3, 4))
    found = ga.gather.forward(A, index, dim=dim)
    wide = A[:, :4] if dim == 0 else A[:3]
    assert (found == np.take_along_axis(wide, index, dim)).all()
    wanted = np.zeros(A.shape)
    at = np.indices(index.shape)
    at[dim] = index
    np.add.at(wanted, tuple(at), found)
    np.testing.assert_allclose(ga.put_along.forward(found, index, dim=dim, shape=A.shape), wanted)


def test_scattering_leaves_the_rest():
    index, src = np.array([[0, 2], [1, 3]]), np.array([[9.0, 8.0], [7.0, 6.0]])
    found = ga.scatter.forward(A, index, src, dim=1)
    assert found[0, [0, 2]].tolist() == [9.0, 8.0] and found[1, [1, 3]].tolist() == [7.0, 6.0]
    changed = found != A
    assert changed.sum() == 4 and not np.may_share_memory(found, A)


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_scattering_by_reduction(reduce, include):
    index = np.array([[0, 0, 1], [0, 2, 1]])
    src = RNG.normal(size=(2, 3))
    found = ga.scatter_reduce.forward(A, index, src, dim=1, reduce=reduce, include_self=include)
    how = {"prod": np.prod, "amax": np.max, "amin": np.min}[reduce]
    for i, j in np.ndindex(A.shape):
        parts = [src[i, k] for k in range(3) if i < 2 and index[i, k] == j]
        parts += [A[i, j]] if include or not parts else []
        np.testing.assert_allclose(found[i, j], how(parts))


def test_putting_into_the_whole():
    index, values = np.array([1, 1, 7]), np.array([1.0, 2.0, 3.0])
    found = ga.put.forward(A, index, values, accumulate=True)
    np.testing.assert_allclose(found.flat[[1, 7]], A.flat[[1, 7]] + 3.0)
    found = ga.put.forward(A, index, values, accumulate=False)
    assert found.flat[7] == 3.0 and found.flat[1] in (1.0, 2.0)


@pytest.mark.parametrize("size", [5, 300])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_stay_in_theirs(size, value):
    g = np.ones((6, 3), np.float32)
    g[2] = value
    out = ga.add_rows(g, np.array([0, 1, 3, 1, 4, 0]), size)
    assert np.isfinite(out).all(1).tolist() == [k != 3 for k in range(size)]
