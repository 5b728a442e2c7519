"""Eigenvalues and eigenvectors: their equations, and derivatives that phases do not change."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core import grad, wrap
from disttrain.errors import AutogradError, LinAlgError
from disttrain.ops.functions.elementwise import abs, conj
from disttrain.ops.primitives.factors import eigen

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 4))


def hermitian():
    a = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
    return a + a.conj().T + np.diag([0.0, 4.0, 9.0, 15.0])


def loss(values, vectors):
    """A real number for which phases do not matter."""
    return (abs(values) * wrap(WEIGHTS[0])).sum() + (abs(vectors) ** 2 * wrap(WEIGHTS)).sum()


def slope(call, a, move, h=1e-6):
    sides = [loss(*call(wrap(a + s * move))).array for s in (h, -h)]
    return float(sides[0] - sides[1]) / (2 * h)


@pytest.mark.parametrize("upper", [False, True])
def test_hermitian_matrices(upper):
    a = hermitian()
    values, vectors = eigen.eigh(wrap(np.triu(a) if upper else np.tril(a)), upper=upper)
    np.testing.assert_allclose(a @ vectors.array, vectors.array * values.array, atol=1e-12)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_any_matrices(kind):
    a = RNG.normal(size=(2, 4, 4)) + (1j * RNG.normal(size=(2, 4, 4)) if kind == "complex" else 0)
    values, vectors = eigen.eig(wrap(a))
    product = vectors.array * values.array[:, None, :]
    np.testing.assert_allclose(a @ vectors.array, product, atol=1e-12)
    np.testing.assert_allclose(np.abs(vectors.array**2).sum(-2).real, 1, atol=1)


@pytest.mark.parametrize("call", ["eigh", "eig real", "eig complex"])
def test_gradients_of_what_phases_do_not_change(call):
    if call == "eigh":
        a, run = hermitian(), lambda x: eigen.eigh(x, upper=False)
        move = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
        move = move + move.conj().T
    else:
        a, run = hermitian() + RNG.normal(size=(4, 4)), eigen.eig
        move = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
        a, move = (a.real, move.real) if call == "eig real" else (a, move)
    x = wrap(a).requires_grad_()
    (g,) = grad(loss(*run(x)), x)
    assert g.dtype is x.dtype
    np.testing.assert_allclose((g.array.conj() * move).sum().real, slope(run, a, move), rtol=1e-5)


@pytest.mark.parametrize("run", [lambda x: eigen.eigh(x, upper=False), eigen.eig])
def test_a_loss_that_depends_on_phases_is_refused(run):
    x = wrap(hermitian()).requires_grad_()
    with pytest.raises(AutogradError, match="specified up to multiplication by e"):
        grad((run(x)[1] * wrap(WEIGHTS * 1j)).sum().real, x)


def test_equal_eigenvalues_leave_the_gradient_of_values_right():
    x = wrap(np.eye(3)).requires_grad_()
    (g,) = grad(eigen.eigh(x, upper=False)[0].sum(), x)
    np.testing.assert_allclose(g.array, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("run", [lambda x: eigen.eigh(x, upper=False), eigen.eig])
def test_numbers_that_are_not_finite_are_refused(run):
    with pytest.raises(LinAlgError, match=r"non-finite|infs or NaNs"):
        run(wrap(np.full((2, 2), np.nan)))


def test_examples_of_eig_are_those_of_the_stack():
    a = RNG.normal(size=(3, 4, 4))
    out, places = eigen.eig.batch((wrap(np.moveaxis(a, 0, 1)),), (1,), {}, 3)
    assert places == (0, 0)
    np.testing.assert_allclose(out[0].array, np.linalg.eigvals(a).astype(complex), atol=1e-12)
    assert conj(out[1]).shape == (3, 4, 4)
