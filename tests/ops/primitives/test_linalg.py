"""Products and decompositions."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import grad, wrap
from disttrain.errors import AutogradError
from disttrain.ops.primitives import linalg as la

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [1, 2, 40, 64, 65])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_few_rows_take_another_order_and_give_the_same(rows, lead):
    x = RNG.normal(size=(*lead, rows, 130)).astype(np.float32)
    w, b = RNG.normal(size=(129, 130)).astype(np.float32), RNG.normal(size=129).astype(np.float32)
    found = la.linear.forward(x, w, b)
    np.testing.assert_allclose(found, x.astype("f8") @ w.T.astype("f8") + b, rtol=1e-3, atol=1e-3)
    assert found.flags.c_contiguous and found.dtype == np.float32


def test_half_types_are_multiplied_in_float32_and_rounded_once():
    a, b = (RNG.normal(size=(8, 8)).astype(np.float16) for _ in range(2))
    wanted = (a.astype("f4") @ b.astype("f4")).astype(np.float16)
    assert (la.matmul.forward(a, b) == wanted).all()


def test_inverses_determinants_and_solutions_of_stacks():
    a, b = RNG.normal(size=(3, 4, 4)) + 4 * np.eye(4), RNG.normal(size=(3, 4, 2))
    np.testing.assert_allclose(
        la.inv.forward(a) @ a, np.broadcast_to(np.eye(4), a.shape), atol=1e-12
    )
    np.testing.assert_allclose(a @ la.solve.forward(a, b), b, atol=1e-12)
    np.testing.assert_allclose(la.det.forward(a), [np.linalg.det(m) for m in a])


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (2, 5, 3)])
def test_singular_values_give_the_matrix_back(shape):
    a = RNG.normal(size=shape)
    u, s, vh = la.svd.forward(a)
    np.testing.assert_allclose(u * s[..., None, :] @ vh, a, atol=1e-12)
    assert (np.diff(s, axis=-1) <= 0).all() and s.shape[-1] == min(shape[-2:])
    u, vh = la.svd_square.forward(a)
    assert u.shape[-1] == shape[-2] and vh.shape[-2] == shape[-1]


def test_the_shape_rule_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="the input's last size 3 is not 4"):
        la.linear.shape(np.zeros((2, 3)), np.zeros((5, 4)))


def test_a_loss_that_depends_on_phases_is_refused():
    x = wrap(RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))).requires_grad_()
    with pytest.raises(AutogradError, match=r"linalg\.svd: .*ill-defined"):
        grad((la.svd(x)[0] * 1j).sum().real, x)


def test_matrices_that_are_not_square_are_refused():
    for prim in (la.inv, la.det):
        with pytest.raises(RuntimeError, match="they are 2 by 3 matrices"):
            prim(wrap(np.ones((2, 3))))


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_determinants_of_singular_matrices_have_gradients(kind):
    a = np.stack([np.diag([0.0, 2.0, 3.0]), np.ones((3, 3)), np.eye(3)])
    a = a + 0j if kind == "complex" else a
    x = wrap(a).requires_grad_()
    (g,) = grad(la.det(x).sum().real, x)
    np.testing.assert_allclose(g.array[0], np.diag([6.0, 0.0, 0.0]), atol=1e-12)
    np.testing.assert_allclose(g.array[1:], np.stack([np.zeros((3, 3)), np.eye(3)]), atol=1e-12)


def test_zeros_of_a_local_product_take_nothing():
    a = np.array([[1.0, np.nan, 2.0], [np.inf, 1.0, 1.0]], np.float32)
    b = np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]], np.float32)
    assert la.local_product.forward(a, b).tolist() == [[5.0, 6.0], [np.inf, 3.0]]
    several = np.stack([b, b * 2])
    out = la.local_product.forward(np.stack([a, a]), several)
    assert out[1].tolist() == [[10.0, 12.0], [np.inf, 6.0]]


@pytest.mark.parametrize(("k", "n"), [(64, 64), (128, 65), (514, 96)])
def test_rows_of_bfloat16_do_not_depend_on_how_many_there_are(k, n):
    x, w, b = (dt.randn(*size).bfloat16() for size in ((20, k), (n, k), (n,)))
    whole, product = dt.nn.functional.linear(x, w, b), x @ w.t()
    for m in (1, 2, 7):
        assert dt.equal(dt.nn.functional.linear(x[:m], w, b), whole[:m])
        assert dt.equal(x[:m] @ w.t(), product[:m])
    assert dt.equal(dt.nn.functional.linear(x[3], w, b), whole[3])
