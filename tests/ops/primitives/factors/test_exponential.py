"""The exponential of matrices, small and large."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives.factors.exponential import matrix_exp

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", "fdFD")
@pytest.mark.parametrize("scale", [1e-8, 0.1, 1.0, 5.0])
def test_it_is_that_of_the_eigenvalues(scale, kind):
    a = (RNG.normal(size=(3, 4, 4)) * scale * (1 + (1j if kind in "FD" else 0))).astype(kind)
    values, vectors = np.linalg.eig(a.astype("D"))
    want = vectors * np.exp(values)[:, None, :] @ np.linalg.inv(vectors)
    got = matrix_exp.forward(a)
    assert got.dtype == a.dtype
    tol = 1e-9 if kind in "dD" else 3e-4
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol * np.abs(want).max())


def test_turns_of_many_rounds_stay_turns():
    angle = 1000.0
    got = matrix_exp.forward(np.array([[0.0, -angle], [angle, 0.0]]))
    want = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_each_matrix_of_a_stack_is_scaled_by_itself():
    a = RNG.normal(size=(2, 3, 3)) * np.array([1e-3, 100.0])[:, None, None]
    np.testing.assert_allclose(matrix_exp.forward(a)[0], matrix_exp.forward(a[0]), rtol=1e-12)


def test_what_is_not_finite_gives_nan_there_alone():
    a = np.stack([np.eye(2), np.full((2, 2), np.inf)])
    got = matrix_exp.forward(a)
    np.testing.assert_allclose(got[0], np.eye(2) * np.e)
    assert np.isnan(got[1]).all()
    assert matrix_exp.forward(np.zeros((0, 0))).shape == (0, 0)
