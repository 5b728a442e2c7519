"""Matrices: systems of equations, products, norms, diagonals."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import systems

M = dt.tensor([[4.0, 1.0], [0.0, 3.0]])
B = dt.tensor([[1.0], [2.0]])


def test_systems():
    assert dt.allclose(M @ systems.solve(M, B), B)
    assert dt.allclose(M.T @ systems.solve(M, B, True), B)
    assert dt.allclose(M @ systems.inverse(M), dt.eye(2))
    assert dt.allclose(M @ systems.triangular_solve(M, B, False), B)
    assert dt.allclose(M.T @ systems.triangular_solve(M, B, False, True), B)
    assert dt.allclose(systems.least_squares(M, B), systems.solve(M, B))
    u = systems.svd(M)
    assert dt.allclose(u[1] * u[0] @ u[2].T, M, atol=1e-5)


def test_what_cannot_be_solved():
    with pytest.raises(ValueError, match="not invertible"):
        systems.solve(dt.zeros(2, 2), B)
    with pytest.raises(ValueError, match="Cholesky decomposition was not successful"):
        systems.cholesky(-M)
    with pytest.raises(ValueError, match="ndims must be >= 2"):
        systems.matmul(M[0], M)


def test_products_norms_and_bands():
    c = dt.tensor([[1.0 + 2.0j, 0.0], [0.0, 1.0]])
    assert systems.matmul(c, c, adjoint_a=True)[0, 0].item() == 5.0
    assert systems.matvec(M, B[:, 0], True).tolist() == [4.0, 7.0]
    assert systems.tensordot(M, M, [[0], [0]]).shape == (2, 2)
    assert systems.norm(dt.tensor([[3.0, 4.0]]), axis=1).tolist() == [5.0]
    assert systems.norm(M, 1, (0, 1)).item() == 4.0
    assert systems.band(dt.ones(3, 3), 0, 1).sum().item() == 5.0
    assert systems.set_diagonal(M, B[:, 0]).tolist() == [[1.0, 1.0], [0.0, 2.0]]
    assert systems.transposed(c, True)[0, 0].item() == 1.0 - 2.0j


def test_factors_and_diagonals():
    spd = M @ M.T
    lower = systems.cholesky(spd)
    assert dt.allclose(spd @ systems.cholesky_solve(lower, B), B, atol=1e-4)
    assert systems.qr(dt.ones(3, 2), True)[0].shape == (3, 3)
    assert systems.qr(dt.ones(3, 2))[0].shape == (3, 2)
    assert systems.eigh(spd)[0].shape == (2,)
    sign, size = systems.slogdet(M)
    assert sign.item() == 1.0 and abs(size.exp().item() - 12.0) < 1e-4
    assert systems.diagonal(M, 1).tolist() == [1.0] and systems.trace(M).item() == 7.0
    assert systems.first_diagonal(M).tolist() == [4.0, 3.0] and systems.rank(M).item() == 2
    assert dt.equal(systems.adjoint_copy(M), M.T)
