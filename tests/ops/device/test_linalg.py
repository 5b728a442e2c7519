"""Products and decompositions on devices: what defines them, batches, nothing, refused types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.on_device import on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


A = RNG.standard_normal((2, 3, 3)) + 3 * np.eye(3)


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["f4", "f8", BF16], ids=str)
def test_linear_of_rows(shape, bias, kind):
    x, w = RNG.standard_normal(shape).astype(kind), RNG.standard_normal((3, 4)).astype(kind)
    b = [RNG.standard_normal(3).astype(kind)] if bias else []
    (found,) = on_device("linear", x, w, *b)
    want = x.astype("f8") @ w.astype("f8").T + (b[0].astype("f8") if bias else 0)
    assert found.shape == (*shape[:-1], 3) and found.dtype == np.dtype(kind)
    tol = {"f8": 1e-12, "f4": 1e-5}.get(kind, 5e-2)
    np.testing.assert_allclose(found.astype("f8"), want, rtol=tol, atol=tol)


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "c16"])
def test_inverses_and_solutions_undo_the_product(kind):
    a, b = A.astype(kind), RNG.standard_normal((2, 3, 2)).astype(kind)
    tol = 1e-4 if kind in ("f4", "c8") else 1e-11
    (inverse,), (x,) = on_device("inv", a), on_device("solve", a, b)
    np.testing.assert_allclose(a @ inverse, np.broadcast_to(np.eye(3), a.shape), atol=tol)
    np.testing.assert_allclose(a @ x, b, atol=tol)


def test_determinants():
    (det,), (sign, log) = on_device("det", A), on_device("slogdet", A)
    want = [np.linalg.det(a) for a in A]
    np.testing.assert_allclose(det, want, rtol=1e-12)
    np.testing.assert_allclose(sign * np.exp(log), want, rtol=1e-12)
    (one,) = on_device("det", A[0])
    assert one.shape == () and on_device("slogdet", A[0])[0].shape == ()


def test_singular_values_put_the_matrix_together():
    a = RNG.standard_normal((2, 4, 3))
    u, s, v = on_device("svd", a)
    assert u.shape == (2, 4, 3) and s.shape == (2, 3)
    np.testing.assert_allclose(u * s[:, None] @ v, a, atol=1e-12)
    full = on_device("svd_square", a)
    assert [m.shape for m in full] == [(2, 4, 4), (2, 3, 3)]
    for m in full:
        np.testing.assert_allclose(
            m @ m.swapaxes(-1, -2), np.broadcast_to(np.eye(m.shape[-1]), m.shape), atol=1e-12
        )


def test_nothing_has_its_values_all_the_same():
    empty = np.zeros((2, 0, 0))
    assert on_device("inv", empty)[0].shape == (2, 0, 0)
    assert on_device("det", empty)[0].tolist() == [1.0, 1.0]
    sign, log = on_device("slogdet", empty)
    assert sign.tolist() == [1.0, 1.0] and log.tolist() == [0.0, 0.0]
    assert on_device("solve", A, np.zeros((2, 3, 0)))[0].shape == (2, 3, 0)
    u, v = on_device("svd_square", np.zeros((0, 2, 3)))
    assert u.shape == (0, 2, 2) and v.shape == (0, 3, 3)
    u, v = on_device("svd_square", np.zeros((2, 0, 3)))
    assert u.shape == (2, 0, 0) and v.tolist() == [np.eye(3).tolist()] * 2


@pytest.mark.parametrize("kind", ["f2", BF16, "i4"], ids=str)
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "svd", "svd_square"])
def test_narrow_types_are_refused_with_advice(name, kind):
    with pytest.raises(TypeError, match=r"not supported by this function; use \.float\(\)"):
        on_device(name, np.ones((2, 2), kind))
