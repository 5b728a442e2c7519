"""Equations are solved, least squares are least, exponentials add up."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

L = dt.linalg


def drawn(*shape, kind=dt.float64, seed=0):
    dt.manual_seed(seed)
    return dt.randn(*shape, dtype=kind)


def near(a, b, tol=1e-9):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=tol)


KINDS = pytest.mark.parametrize("kind", [dt.float64, dt.complex128])


@KINDS
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems(upper, left, unit, kind):
    a, b = drawn(2, 1, 3, 3, kind=kind) + 3 * dt.eye(3), drawn(4, 3, 3, kind=kind, seed=1)
    x = L.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)
    used = a.triu(1 if unit else 0) if upper else a.tril(-1 if unit else 0)
    used = used + dt.eye(3) if unit else used
    near(used @ x if left else x @ used, b.expand(2, 4, 3, 3))


@KINDS
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_systems_by_lu(adjoint, left, kind):
    a, b = drawn(2, 3, 3, kind=kind), drawn(2, 3, 3, kind=kind, seed=1)
    x = L.lu_solve(*L.lu_factor(a), b, left=left, adjoint=adjoint)
    used = a.mH if adjoint else a
    near(used @ x if left else x @ used, b)


@KINDS
def test_systems_by_other_factors(kind):
    a, b = drawn(2, 3, 3, kind=kind), drawn(2, 3, 2, kind=kind, seed=1)
    definite = a @ a.mH + dt.eye(3)
    for upper in (False, True):
        factor = L.cholesky(definite, upper=upper)
        near(definite @ dt.cholesky_solve(b, factor, upper), b)
        near(definite @ dt.cholesky_inverse(factor, upper), dt.eye(3).to(kind).expand(2, 3, 3))
    h = a + a.mH
    near(h @ L.ldl_solve(*L.ldl_factor(h, hermitian=True), b, hermitian=True), b)
    near(a @ L.solve_ex(a, b).result, b)
    near(a @ L.inv_ex(a).inverse, dt.eye(3).to(kind).expand(2, 3, 3))
    assert L.inv_ex(a).info.tolist() == [0, 0]


@KINDS
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (2, 4, 2), (0, 3), (3, 0)])
def test_the_pseudoinverse_is_that_of_penrose(shape, kind):
    a = drawn(*shape, kind=kind)
    p = L.pinv(a)
    near(a @ p @ a, a)
    near(p @ a @ p, p)
    near((a @ p).mH, a @ p)
    near((p @ a).mH, p @ a)


def test_small_singular_values_count_as_none():
    a = dt.diag(dt.tensor([4.0, 1.0, 1e-3], dtype=dt.float64))
    assert L.matrix_rank(a).item() == 3
    assert L.matrix_rank(a, rtol=0.1).item() == L.matrix_rank(a, atol=0.1).item() == 2
    assert L.matrix_rank(a, 2.0).item() == 1
    assert L.matrix_rank(-a, hermitian=True, rtol=0.1).item() == 2
    assert L.matrix_rank(a.expand(2, 3, 3), atol=dt.tensor([0.1, 2.0])).tolist() == [2, 1]
    wanted = dt.diag(dt.tensor([0.25, 1.0, 0.0], dtype=dt.float64))
    for p in (L.pinv(a, 0.1), L.pinv(a, atol=0.1), dt.pinverse(a, 0.1),
              L.pinv(a, rtol=dt.tensor(0.1), hermitian=True)):  # fmt: skip
        near(p, wanted)
    with pytest.raises(TypeError, match="tensor of complex type is not supported"):
        L.pinv(a, atol=dt.tensor(1j))


def test_least_squares():
    a, b = drawn(2, 5, 3), drawn(2, 5, 2, seed=1)
    out = L.lstsq(a, b, driver="gelsd")
    near(a.mT @ (a @ out.solution - b), dt.zeros(2, 3, 2))
    near(out.residuals, ((a @ out.solution - b) ** 2).sum(-2))
    near(out.singular_values, L.svdvals(a))
    assert out.rank.tolist() == [3, 3]
    near(L.lstsq(a, b[..., 0]).solution, out.solution[..., 0])
    assert [x.numel() for x in L.lstsq(a, b)[1:]] == [0, 2, 0]  # gelsy
    assert [x.numel() for x in L.lstsq(a, b, driver="gels")[1:]] == [4, 0, 0]
    short = L.lstsq(a.mT, b[:, :3]).solution  # the shortest of many
    near(a.mT @ short, b[:, :3])
    near(short, L.pinv(a.mT) @ b[:, :3])


@pytest.mark.parametrize(("call", "said"), [
    (lambda: L.lstsq(dt.ones(3, 2), dt.ones(2, 2)), "should match"),
    (lambda: L.lstsq(dt.ones(3, 2), dt.ones(3), driver="x"), "gels, gelsy"),
    (lambda: L.lstsq(dt.ones(3, 2), dt.tensor(1.0)), "at least 1 dimension"),
    (lambda: L.solve_triangular(dt.ones(2, 2), dt.ones(3, 1), upper=True), "AX = B"),
    (lambda: L.solve_triangular(dt.ones(2, 2), dt.ones(2, 1).double(), upper=True), "same dtype"),
    (lambda: L.lu_solve(dt.ones(2, 2), dt.ones(2), dt.ones(2, 1)), "int32"),
    (lambda: dt.cholesky_inverse(dt.diag(dt.tensor([1.0, 0.0]))), "diagonal element 2 is zero"),
    (lambda: L.inv_ex(dt.zeros(2, 2), check_errors=True), "linalg.inv_ex"),
    (lambda: L.solve_ex(dt.zeros(2, 2), dt.ones(2), check_errors=True), "linalg.solve_ex"),
    (lambda: L.matrix_exp(dt.ones(2, 3)), "square"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call, said):
    with pytest.raises(RuntimeError, match=said):
        call()


def test_exponentials_of_what_commutes_multiply():
    a = drawn(2, 3, 3)
    near(L.matrix_exp(a) @ L.matrix_exp(-a), dt.eye(3).expand(2, 3, 3).double())
    half = dt.matrix_exp(a.bfloat16())
    assert half.dtype is dt.bfloat16
    near(half.double(), L.matrix_exp(a.bfloat16().double()), 0.1)


def test_second_derivatives_agree_with_differences():
    a, b = (drawn(3, 3, seed=s).requires_grad_() for s in (2, 3))
    for call in (
        lambda x, y: L.lu_solve(*L.lu_factor(x), y), lambda x, y: L.lstsq(x[:, :2], y).solution,
        lambda x, y: L.solve_triangular(x, y, upper=True), lambda x, y: L.matrix_exp(x) @ y,
        lambda x, y: dt.cholesky_solve(y, L.cholesky(x @ x.mT + dt.eye(3))),
    ):  # fmt: skip
        assert dt.autograd.gradcheck(call, (a, b))
        assert dt.autograd.gradgradcheck(call, (a, b))
