"""Functions of matrices: against NumPy, with derivatives of two orders, and what does not fit."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ShapeError

rng = np.random.default_rng(0)
L = dt.linalg


def drawn(*shape, kind="f8"):
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if kind == "c16" else a).astype(kind)


def _power(n):
    return lambda A: L.matrix_power(A, n), lambda a: np.linalg.matrix_power(a, n), [(2, 3, 3)]


def _cond(p):
    return lambda A: L.cond(A, p), lambda a: np.linalg.cond(a, p), [(2, 3, 3)]


CASES = {
    **{f"matrix_power {n}": _power(n) for n in (-3, -1, 1, 2, 5)},
    **{f"cond {p}": _cond(p) for p in (None, 2, -2, "fro", "nuc", 1, -1, np.inf, -np.inf)},
    "slogdet": (lambda A: L.slogdet(A)[1], lambda a: np.linalg.slogdet(a)[1], [(2, 3, 3)]),
    "svdvals": (L.svdvals, lambda a: np.linalg.svd(a, compute_uv=False), [(2, 4, 2)]),
    "vecdot": (L.vecdot, lambda x, y: (x.conj() * y).sum(-1), [(4, 1, 3), (2, 3)]),
    "cross": (L.cross, lambda x, y: np.cross(x, y), [(2, 3), (1, 3)]),
    "cross of dim 0": (lambda x, y: L.cross(x, y, dim=0), lambda x, y: np.cross(x, y, axis=0),
                       [(3, 2), (3, 2)]),
    "vander": (L.vander, lambda x: x[:, None] ** np.arange(4), [(4,)]),
    "vander 2": (lambda x: L.vander(x, N=2), lambda x: x[..., None] ** np.arange(2), [(2, 3)]),
    "tensorinv": (L.tensorinv, np.linalg.tensorinv, [(2, 3, 3, 2)]),
    "tensorsolve": (L.tensorsolve, np.linalg.tensorsolve, [(2, 3, 6), (2, 3)]),
    "diagonal": (lambda A: L.diagonal(A, offset=1),
                 lambda a: np.diagonal(a, 1, -2, -1), [(2, 3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f8", "c16"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name, kind):
    fn, book, shapes = CASES[name]
    arrays = [drawn(*s, kind=kind) for s in shapes]
    tensors = tuple(dt.tensor(a).requires_grad_() for a in arrays)
    np.testing.assert_allclose(fn(*tensors).detach().numpy(), book(*arrays), rtol=1e-9, atol=1e-9)
    if kind == "f8":
        assert dt.autograd.gradcheck(fn, tensors)
        assert dt.autograd.gradgradcheck(fn, tensors)


def test_powers_of_order_0_and_of_nothing():
    one = L.matrix_power(dt.tensor(drawn(2, 3, 3)), 0)
    np.testing.assert_array_equal(one.numpy(), np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert L.matrix_power(dt.zeros(0, 0), 2).shape == (0, 0)
    given = dt.ones(2, 2)
    assert L.matrix_power(given, 1).data_ptr() != given.data_ptr()


def test_condition_of_singular_matrices():
    both = np.stack([np.eye(2), np.zeros((2, 2))])
    np.testing.assert_array_equal(L.cond(dt.tensor(both), 1).numpy(), [1.0, np.inf])
    assert L.cond(dt.zeros(2, 2), "fro").item() == np.inf
    assert L.cond(dt.zeros(0, 3, 3), 1).shape == (0,)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: L.matrix_power(dt.ones(3, 2), 2), "batches of square matrices"),
        (lambda: L.matrix_power(dt.ones(3), 2), "at least 2 dimensions"),
        (lambda: L.cond(dt.ones(3)), "at least 2 dimensions"),
        (lambda: L.cross(dt.ones(2), dt.ones(2)), "must have length 3"),
        (lambda: L.cross(dt.ones(2, 3), dt.ones(3)), "same number of dimensions"),
        (lambda: L.vander(dt.ones(1)), "greater than 1"),
        (lambda: L.tensorinv(dt.ones(2, 3), 1), "requirement prod"),
        (lambda: L.tensorinv(dt.ones(2, 2), 0), "strictly positive"),
        (lambda: L.tensorsolve(dt.ones(2, 3, 5), dt.ones(2, 3)), "requirement prod"),
        (lambda: L.vecdot(dt.ones(3), dt.ones(3).double()), "same dtype"),
    ],
)
def test_what_does_not_fit(call, said):
    with pytest.raises((ShapeError, RuntimeError), match=said):
        call()


def test_into_what_is_given():
    A = dt.tensor(drawn(3, 3))
    out = dt.empty(3, 3, dtype=dt.float64)
    assert L.matrix_power(A, 2, out=out) is out
    np.testing.assert_allclose(out.numpy(), A.numpy() @ A.numpy(), atol=1e-12)


def test_the_sign_of_a_determinant():
    A = drawn(2, 3, 3, kind="c16")
    given = dt.tensor(A).requires_grad_()
    found = L.slogdet(given)
    np.testing.assert_allclose(found.sign.detach().numpy(), np.linalg.slogdet(A)[0], rtol=1e-12)
    assert dt.autograd.gradcheck(lambda x: tuple(L.slogdet(x)), (given,))
    assert dt.autograd.gradgradcheck(lambda x: tuple(L.slogdet(x)), (given,))
    sign, size = L.slogdet(dt.zeros(2, 2))
    assert (sign.item(), size.item()) == (0.0, -np.inf)
    assert [x.item() for x in L.slogdet(dt.zeros(0, 0))] == [1.0, 0.0]
