"""Positive definite matrices: what is read, what fails, complex derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core import grad, wrap
from disttrain.errors import LinAlgError
from disttrain.ops.primitives.factors.cholesky import cholesky

RNG = np.random.default_rng(0)


def positive():
    a = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    return a @ a.conj().T + np.eye(3)


def test_one_triangle_is_read():
    a = positive()
    factor = cholesky(wrap(np.tril(a)), check="")[0].array
    np.testing.assert_allclose(factor @ factor.conj().T, a, atol=1e-12)


def test_the_gradient_is_that_of_hermitian_matrices():
    a, weights = positive(), RNG.normal(size=(3, 3))
    move = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    move = move + move.conj().T
    x = wrap(a).requires_grad_()
    (g,) = grad((cholesky(x, check="")[0].real * wrap(weights)).sum(), x)
    sides = [(np.linalg.cholesky(a + s * move).real * weights).sum() for s in (1e-6, -1e-6)]
    np.testing.assert_allclose(
        (g.array.conj() * move).sum().real, (sides[0] - sides[1]) / 2e-6, rtol=1e-6
    )
    np.testing.assert_allclose(g.array, g.array.conj().T, atol=1e-12)


def test_the_first_minor_that_fails_is_told():
    stack = np.stack([np.eye(4), np.diag([1.0, 4.0, -1.0, 1.0]), -np.eye(4)])
    factor, info = cholesky.forward(stack, "")
    assert info.tolist() == [0, 3, 1] and info.dtype == np.int32
    np.testing.assert_allclose(factor[1, :2, :2], np.diag([1.0, 2.0]))
    with pytest.raises(LinAlgError, match=r"who: \(Batch element 1\): .*minor of order 3 is not"):
        cholesky.forward(stack, "who")
