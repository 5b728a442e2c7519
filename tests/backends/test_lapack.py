"""LAPACK's routines, and the same in steps of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import lapack

RNG = np.random.default_rng(0)
KINDS = "fdFD"
TOLERANCE = {"f": 1e-4, "F": 1e-4, "d": 1e-10, "D": 1e-10}


def numbers(shape, kind):
    made = RNG.normal(size=shape)
    return (made + 1j * RNG.normal(size=shape) if kind in "FD" else made).astype(kind)


@pytest.fixture(params=["library", "arrays"])
def way(request, monkeypatch):
    if request.param == "arrays":
        monkeypatch.setattr(lapack, "available", lambda: False)
    return request.param


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_a_triangular_system_is_solved(way, upper, unit, kind):
    for n, k, lead in ((4, 3, ()), (40, 2, (2,)), (1, 1, (2, 3)), (3, 0, ()), (0, 2, (2,))):
        a, b = numbers((*lead, n, n), kind) / max(n, 1), numbers((*lead, n, k), kind)
        a += 2 * np.eye(n, dtype=kind)
        used = np.triu(a) if upper else np.tril(a)
        used = used - used * np.eye(n, dtype=kind) + np.eye(n, dtype=kind) if unit else used
        before = a.copy(), b.copy()
        x = lapack.solved_triangular(a, b, upper, unit)
        assert x.dtype == b.dtype and x.shape == b.shape
        np.testing.assert_allclose(used @ x, b, atol=TOLERANCE[kind])
        np.testing.assert_array_equal(a, before[0])
        np.testing.assert_array_equal(b, before[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5), (2, 0, 3), (0, 3, 3)])
def test_rows_are_exchanged_as_told(way, shape, kind):
    a = numbers(shape, kind)
    both, pivots, info = lapack.lu(a)
    m, n = shape[-2:]
    k = min(m, n)
    assert pivots.dtype == info.dtype == np.int32 and pivots.shape == (*shape[:-2], k)
    lower = np.tril(both[..., :k], -1) + np.eye(m, k, dtype=kind)
    product = lower @ np.triu(both[..., :k, :])
    for at in np.ndindex(*shape[:-2]):
        moved = a[at].copy()
        for i, j in enumerate(pivots[at]):
            moved[[i, j - 1]] = moved[[j - 1, i]]
        np.testing.assert_allclose(product[at], moved, atol=TOLERANCE[kind])
    assert not info.any()


def test_the_first_zero_pivot_is_told(way):
    a = np.stack([np.eye(3), np.diag([1.0, 0.0, 0.0]), np.zeros((3, 3))])
    assert lapack.lu(a)[2].tolist() == [0, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hermitian", [False, True])
def test_a_symmetric_matrix_that_is_not_definite_is_solved(hermitian, kind):
    if not lapack.available():
        pytest.skip("not here: numpy shows no routines of LAPACK")
    a = numbers((2, 5, 5), kind)
    turned = np.swapaxes(a, -1, -2)
    a, b = a + (turned.conj() if hermitian else turned), numbers((2, 5, 3), kind)
    both, pivots, info = lapack.ldl(np.tril(a), hermitian)
    x = lapack.ldl_solved(both, pivots, b, hermitian)
    np.testing.assert_allclose(a @ x, b, atol=TOLERANCE[kind] * 10)
    assert not info.any()


def test_without_the_library_indefinite_matrices_are_refused(monkeypatch):
    monkeypatch.setattr(lapack, "available", lambda: False)
    with pytest.raises(NotImplementedError, match="ldl_factor needs LAPACK's routines"):
        lapack.ldl(np.eye(2), False)


def test_other_types_are_refused():
    for call in (lapack.lu, lambda a: lapack.solved_triangular(a, a, True, False)):
        with pytest.raises(TypeError, match="float16 is unsupported in linalg"):
            call(np.ones((2, 2), np.float16))
