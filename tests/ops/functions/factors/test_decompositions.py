"""Decompositions give their matrices back; what they are not for, they say."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.functions.factors import checks

L = dt.linalg
SHAPES = [(3, 3), (5, 2), (2, 4), (2, 3, 3), (0, 3, 3), (2, 0, 0)]


def drawn(*shape, kind=dt.float64):
    dt.manual_seed(0)
    return dt.randn(*shape, dtype=kind)


def positive(*lead, kind=dt.float64):
    a = drawn(*lead, 3, 3, kind=kind)
    return a @ a.mH + dt.eye(3, dtype=kind)


def near(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-10)


@pytest.mark.parametrize("kind", [dt.float64, dt.complex128])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_give_the_matrix_back(shape, kind):
    a = drawn(*shape, kind=kind)
    near(L.qr(a).Q @ L.qr(a).R, a)
    p, lower, upper = L.lu(a)
    near(p @ lower @ upper, a)
    near(dt.lu_unpack(*L.lu_factor(a)).P, p)
    if shape[-2] >= shape[-1]:
        vectors, factors = dt.geqrf(a)
        near(L.householder_product(vectors, factors) @ vectors[..., : shape[-1], :].triu(), a)


@pytest.mark.parametrize("kind", [dt.float64, dt.complex128])
def test_factors_of_definite_matrices(kind):
    a = positive(2, kind=kind)
    near(L.cholesky(a) @ L.cholesky(a).mH, a)
    near(L.cholesky(a.triu(), upper=True), L.cholesky(a.tril()).mH)
    values, vectors = L.eigh(a)
    near(vectors * values.unsqueeze(-2) @ vectors.mH, a)
    near(L.eigvalsh(a, UPLO="u"), values)
    values, vectors = L.eig(a)
    near(vectors * values.unsqueeze(-2) @ L.inv(vectors), a.to(vectors.dtype))
    near(L.eigvals(a), values)


def test_failures_are_told_as_numbers_or_as_errors():
    bad = dt.diag(dt.tensor([1.0, -1.0]))
    assert L.cholesky_ex(bad).info.item() == 2
    assert L.cholesky_ex(dt.stack([-bad, dt.eye(2)])).info.tolist() == [1, 0]
    for call, said in (
        (lambda: L.cholesky(bad), r"linalg.cholesky: .* order 2 is not positive-definite"),
        (lambda: L.cholesky_ex(bad, check_errors=True), "linalg.cholesky_ex"),
        (lambda: L.lu_factor(dt.zeros(2, 2)), r"U\[1,1\] is zero"),
        (lambda: L.lu_factor_ex(dt.zeros(3, 2, 2), check_errors=True), r"\(Batch element 0\)"),
        (lambda: L.ldl_factor(dt.zeros(2, 2)), r"D\[1,1\] is zero"),
        (lambda: L.inv(dt.zeros(2, 2, 2)), r"linalg.inv: \(Batch element 0\): .*singular"),
        (lambda: L.solve(dt.zeros(2, 2), dt.ones(2)), "linalg.solve: The solver failed"),
    ):
        with pytest.raises(L.LinAlgError, match=said):
            call()
    assert L.lu_factor_ex(dt.zeros(2, 2)).info.item() == 1


@pytest.mark.parametrize(("call", "said"), [
    (lambda: L.qr(dt.ones(3)), "at least 2 dimensions"),
    (lambda: L.qr(dt.ones(3, 3), "full"), "unrecognized mode 'full'"),
    (lambda: L.cholesky(dt.ones(2, 3)), "2 by 3 matrices"),
    (lambda: L.eigh(dt.ones(2, 2), "X"), "'L' or 'U', but got X"),
    (lambda: L.eig(dt.ones(2, 2).half()), "Low precision"),
    (lambda: L.eig(dt.ones(2, 2, dtype=dt.int64)), "not implemented for integers"),
    (lambda: L.lu(dt.ones(2, 2), pivot=False), "without pivoting"),
    (lambda: L.householder_product(dt.ones(2, 3), dt.ones(2)), r"shape\[-2\] must be"),
    (lambda: L.householder_product(dt.ones(3, 2), dt.ones(3)), r"tau.shape\[-1\]"),
    (lambda: L.householder_product(dt.ones(2, 3, 2), dt.ones(2)), "one dimension less"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call, said):
    with pytest.raises(RuntimeError, match=said):
        call()


def test_compiled_and_mapped_decompositions_are_the_eager_ones():
    a = positive(3)

    def all_of(x):
        return L.cholesky(x), L.qr(x).R, L.eigh(x).eigenvalues, L.lu_factor(x).LU, L.pinv(x)

    wanted = all_of(a)
    for got in (dt.compile(all_of)(a), dt.func.vmap(all_of)(a)):
        for g, w in zip(got, wanted, strict=True):
            near(g, w)


def test_a_replayed_decomposition_refuses_what_the_eager_one_refuses():
    run = dt.compile(lambda x: L.cholesky(x) * 2)
    run(dt.eye(2))
    with pytest.raises(L.LinAlgError, match="not positive-definite"):
        run(-dt.eye(2))


@pytest.mark.parametrize("call", [
    lambda a: L.qr(a).R, L.inv, L.eigvalsh, L.svdvals, lambda a: L.solve(a, a), L.cholesky,
    lambda a: dt.svd(a).S, dt.inverse, lambda a: dt.fft.rfft(a).real, lambda a: dt.cdist(a, a),
    lambda a: dt.svd_lowrank(a, 2)[1], lambda a: L.lstsq(a, a).solution,
])  # fmt: skip
def test_autocast_computes_them_in_float32(call):
    a = positive().bfloat16()
    with dt.autocast("cpu", dt.bfloat16):
        assert call(a).dtype is dt.float32


def test_leading_dimensions_broadcast():
    a, b = checks.one_batch("here", dt.ones(2, 1, 3, 3), dt.ones(4, 3, 1))
    assert a.shape == (2, 4, 3, 3) and b.shape == (2, 4, 3, 1)
