"""Decompositions by random projections, and eigenvalues by iteration, find what is there."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

L = dt.linalg


def of_rank(rank, *shape):
    dt.manual_seed(0)
    left, right = (dt.randn(*shape[:-2], n, rank, dtype=dt.float64) for n in shape[-2:])
    return left @ right.mT


def symmetric(m):
    dt.manual_seed(0)
    vectors = L.qr(dt.randn(m, m, dtype=dt.float64)).Q
    return vectors * dt.arange(1.0, m + 1).double() @ vectors.mT


@pytest.mark.parametrize("shape", [(20, 10), (10, 20), (2, 12, 12)])
def test_a_matrix_of_low_rank_is_found(shape):
    a = of_rank(3, *shape)
    u, s, v = dt.svd_lowrank(a, 5)
    np.testing.assert_allclose((u * s.unsqueeze(-2) @ v.mH).numpy(), a.numpy(), atol=1e-9)
    np.testing.assert_allclose(s[..., :3].numpy(), L.svdvals(a)[..., :3].numpy())
    u, s, v = dt.svd_lowrank(a, 4, M=a.mean(-2, keepdim=True))
    centered = dt.pca_lowrank(a, 4)[1]
    np.testing.assert_allclose(s.numpy()[..., :2], centered.numpy()[..., :2])


def test_wrong_numbers_of_components_are_refused():
    for options in ({"q": 9}, {"q": -1}, {"niter": -1}):
        with pytest.raises(ValueError, match="non-negative integer"):
            dt.pca_lowrank(dt.ones(4, 5), **options)


@pytest.mark.parametrize("largest", [True, False])
def test_a_few_eigenvalues(largest):
    a = symmetric(20)
    values, vectors = dt.lobpcg(a, 3, largest=largest)
    wanted = [20.0, 19.0, 18.0] if largest else [1.0, 2.0, 3.0]
    np.testing.assert_allclose(values.numpy(), wanted, rtol=1e-8)
    np.testing.assert_allclose((a @ vectors).numpy(), (vectors * values).numpy(), atol=1e-5)


def test_with_another_product_and_a_preconditioner():
    a, b = symmetric(15), dt.diag(dt.linspace(1, 2, 15).double())
    values, vectors = dt.lobpcg(a, 2, b, iK=L.inv(a), largest=False)
    factor = L.inv(L.cholesky(b))
    wanted = L.eigvalsh(factor @ a @ factor.mT)[:2]
    np.testing.assert_allclose(values.numpy(), wanted.numpy(), rtol=1e-7)
    np.testing.assert_allclose((a @ vectors).numpy(), (b @ vectors * values).numpy(), atol=1e-4)


def test_the_derivative_is_that_of_the_eigenvectors():
    a = symmetric(9).requires_grad_()
    weights = dt.arange(18.0).reshape(9, 2).double().cos()

    def loss(values, vectors):
        return values.sum() + (vectors**2 * weights).sum()

    (got,) = dt.autograd.grad(loss(*dt.lobpcg(a, 2)), a)
    values, vectors = L.eigh(a)
    (want,) = dt.autograd.grad(loss(values[-2:].flip(0), vectors[:, -2:].flip(1)), a)
    np.testing.assert_allclose(((got + got.T) / 2).numpy(), want.numpy(), atol=1e-5)


@pytest.mark.parametrize(("options", "said"), [
    ({"k": 4}, "smaller than 3 x"), ({"k": 1, "method": "fast"}, "needed 'basic' or 'ortho'"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(options, said):
    with pytest.raises(ValueError, match=said):
        dt.lobpcg(dt.eye(9), **options)
