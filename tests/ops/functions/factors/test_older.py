"""Older names do what the newer ones do."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

L = dt.linalg


def drawn(*shape, kind=dt.float64, seed=0):
    dt.manual_seed(seed)
    return dt.randn(*shape, dtype=kind)


def near(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-10)


def test_decompositions():
    a = drawn(4, 2)
    near(dt.qr(a).Q @ a.qr().R, a)
    assert dt.qr(a, some=False).Q.shape == (4, 4)
    u, s, v = dt.svd(a)
    near(u * s @ v.mH, a)
    assert a.svd(some=False).U.shape == (4, 4)
    assert dt.svd(a, compute_uv=False).V.tolist() == dt.zeros(2, 2).tolist()
    square = a.mT @ a
    near(square.cholesky(), L.cholesky(square))
    near(dt.cholesky(square, upper=True), L.cholesky(square, upper=True))


@pytest.mark.parametrize("kind", [dt.float64, dt.complex128])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_products_with_reflections(left, transpose, kind):
    a, c = drawn(2, 4, 3, kind=kind), drawn(2, 4, 4, kind=kind, seed=1)
    vectors, factors = dt.geqrf(a)
    near(dt.orgqr(vectors, factors), L.householder_product(vectors, factors))
    whole = dt.ormqr(vectors, factors, dt.eye(4).to(kind).expand(2, 4, 4))
    near(whole @ whole.mH, dt.eye(4).to(kind).expand(2, 4, 4))
    used = whole.mH if transpose else whole
    near(vectors.ormqr(factors, c, left, transpose), used @ c if left else c @ used)


def test_lu():
    a, b = drawn(2, 3, 3), drawn(2, 3, 1, seed=1)
    near(a @ dt.lu_solve(b, *dt.lu(a)), b)
    near(b.lu_solve(*a.lu()), L.solve(a, b))
    assert dt.lu(dt.zeros(2, 2), get_infos=True)[2].item() == 1
    p, lower, upper = dt.lu_unpack(*a.lu(), unpack_data=False)
    near(p, L.lu(a).P)
    assert lower.numel() == upper.numel() == 0
    with pytest.raises(RuntimeError, match="properly pass the result of lu_factor"):
        L.lu_solve(a, dt.zeros(2, 3, dtype=dt.int32), b)
    for given, said in (((dt.ones(2, 2), dt.ones(2)), "int32"),
                        ((dt.ones(2, 2), dt.ones(3, dtype=dt.int32)), "do not fit")):  # fmt: skip
        with pytest.raises(RuntimeError, match=said):
            dt.lu_unpack(*given)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems(upper, transpose):
    a, b = drawn(3, 3) + 3 * dt.eye(3), drawn(2, 3, 1, seed=1)
    x, copy = b.triangular_solve(a, upper, transpose)
    used = a.triu() if upper else a.tril()
    near((used.T if transpose else used) @ x, b)
    assert copy.shape == (2, 3, 3)


def test_norms():
    x = drawn(2, 3, 4)
    near(dt.frobenius_norm(x, (0, 1)), (x**2).sum((0, 1)).sqrt())
    near(dt.frobenius_norm(x, ()), x.norm())
    near(dt.nuclear_norm(x), L.svdvals(x).sum(-1))
    assert dt.nuclear_norm(x, True).shape == (2, 1, 1) and dt.nuclear_norm(x, (0, 2)).shape == (3,)
    near(dt.norm_except_dim(x, 1, 1), x.abs().sum((0, 2), keepdim=True))
    near(dt.norm_except_dim(x, dim=-1), x.norm())


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_what_pytorch_has_removed_says_what_to_use(name):
    with pytest.raises(RuntimeError, match=r"removed\. Please use the `torch\.linalg\."):
        getattr(dt, name)(dt.eye(2))
