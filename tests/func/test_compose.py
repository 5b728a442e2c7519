"""Transforms in all compositions of two, against finite differences and loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain import func, ops
from disttrain.core import wrap

RNG = np.random.default_rng(3)
W = wrap(RNG.normal(size=(3, 3)))
X = RNG.normal(size=(3,))
XS = RNG.normal(size=(4, 3))
T = RNG.normal(size=(3,))


def f(x):
    """Scalar: product, broadcasting, tanh, an index, a sum."""
    h = ops.tanh(W @ x + x[0] * 0.5)
    return (h * h * x).sum() + ops.logsumexp(h, 0) * x[1]


def number(x):
    return float(f(wrap(np.asarray(x))).array)


def slope(g, x, t, h=1e-5):
    """The derivative of ``g`` at ``x`` along ``t``, by central differences of order 4."""
    at = [np.asarray(g(x + k * h * t)) for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)


def gradient(g, x):
    return np.stack([slope(g, x, e) for e in np.eye(x.size)], -1)


def close(got, want, tol=1e-6):
    np.testing.assert_allclose(got.numpy(), want, rtol=tol, atol=tol)


GRAD = gradient(number, X)
HESS = gradient(lambda x: func.grad(f)(wrap(x)).numpy(), X)


def test_grad_and_jvp_alone():
    close(func.grad(f)(wrap(X)), GRAD)
    value, moved = func.jvp(f, (wrap(X),), (wrap(T),))
    close(value, number(X))
    close(moved, GRAD @ T)
    close(func.vmap(f)(wrap(XS)), [number(x) for x in XS])


def grad_(g):
    return func.grad(lambda x: g(x).sum())


def jvp_(g):
    return lambda x: func.jvp(g, (x,), (wrap(T),))[1]


def np_grad(g):
    return lambda x: gradient(lambda z: np.asarray(g(z)).sum(), x)


def np_jvp(g):
    return lambda x: slope(g, x, T)


DERIVE = {"grad": (grad_, np_grad), "jvp": (jvp_, np_jvp)}


@pytest.mark.parametrize("outer,inner", list(itertools.product(DERIVE, DERIVE)))
def test_two_derivatives(outer, inner):
    mine = DERIVE[outer][0](DERIVE[inner][0](f))
    want = {"grad": HESS.sum(0), "jvp": HESS @ T}[inner]
    if outer == "jvp":
        want = {"grad": HESS @ T, "jvp": T @ HESS @ T}[inner]
    elif inner == "jvp":
        want = HESS @ T
    close(mine(wrap(X)), want, 1e-5)


@pytest.mark.parametrize("outer,inner", list(itertools.product(DERIVE, DERIVE)))
def test_vmap_over_two_derivatives(outer, inner):
    mine = DERIVE[outer][0](DERIVE[inner][0](f))
    got = func.vmap(mine)(wrap(XS))
    close(got, np.stack([mine(wrap(x)).numpy() for x in XS]))


@pytest.mark.parametrize("outer,inner", list(itertools.product(DERIVE, DERIVE)))
def test_vmap_between_and_below_derivatives(outer, inner):
    batch = {"grad": wrap(XS), "jvp": wrap(XS)}
    directions = wrap(np.tile(T, (4, 1)))

    def one(kind, g):
        if kind == "grad":
            return func.grad(lambda xs: (g(xs) * 1.5).sum())
        return lambda xs: func.jvp(g, (xs,), (directions,))[1]

    def row(kind, g, scale):
        if kind == "grad":
            return func.grad(lambda x: (g(x) * scale).sum())
        return lambda x: func.jvp(g, (x,), (wrap(T),))[1]

    between = one(outer, func.vmap(DERIVE[inner][0](f)))(batch[outer])
    loop = row(outer, DERIVE[inner][0](f), 1.5)
    close(between, np.stack([loop(wrap(x)).numpy() for x in XS]))
    below = one(outer, one(inner, func.vmap(f)))(batch[outer])
    loop = row(outer, row(inner, f, 1.5), 1.5)
    close(below, np.stack([loop(wrap(x)).numpy() for x in XS]))


def test_vmap_of_vmap():
    a, b = wrap(RNG.normal(size=(4, 3))), wrap(RNG.normal(size=(5, 3)))
    table = func.vmap(lambda x: func.vmap(lambda y: (x * y).sum())(b))(a)
    close(table, a.numpy() @ b.numpy().T)
    both = func.vmap(func.vmap(f))(wrap(np.stack([XS, 2 * XS])))
    close(both, [[number(x) for x in XS], [number(2 * x) for x in XS]])


@pytest.mark.parametrize(
    "of",
    [
        func.hessian,
        lambda g: func.jacfwd(func.jacfwd(g)),
        lambda g: func.jacrev(func.jacrev(g)),
        lambda g: func.jacrev(func.jacfwd(g)),
    ],
)
def test_hessian_in_every_mode(of):
    close(of(f)(wrap(X)), HESS, 1e-5)


def test_third_derivative_and_per_sample_hessians():
    cube = func.grad(func.grad(func.grad(lambda x: x * x * x * x)))
    close(cube(wrap(np.array(2.0))), 48.0)
    got = func.vmap(func.hessian(f))(wrap(XS))
    close(got, np.stack([func.hessian(f)(wrap(x)).numpy() for x in XS]))


def test_no_confusion_of_nested_derivatives():
    inner = func.grad(lambda x: x * func.grad(lambda y: x + y)(wrap(np.array(1.0))))
    close(inner(wrap(np.array(3.0))), 1.0)
    moved = func.jvp(
        lambda x: x * func.jvp(lambda y: x + y, (wrap(np.array(1.0)),), (wrap(np.array(1.0)),))[1],
        (wrap(np.array(3.0)),),
        (wrap(np.array(1.0)),),
    )[1]
    close(moved, 1.0)


def test_a_closed_over_tensor_is_differentiated_through():
    def loss(w):
        return func.grad(lambda x: (w * x * x).sum())(wrap(X)).sum()

    close(func.grad(loss)(wrap(T)), 2 * X)
    per = func.vmap(lambda x: func.grad(lambda w: (w * x).sum())(wrap(T)))(wrap(XS))
    close(per, XS)
    leaf = wrap(T.copy()).requires_grad_()
    func.vmap(func.grad(lambda x: (leaf * x * x).sum()))(wrap(XS)).sum().backward()
    close(leaf.grad, 2 * XS.sum(0))


def test_detach_cuts_every_derivative():
    g = func.grad(lambda xs: func.vmap(lambda x: (x.detach() * x).sum())(xs).sum())
    close(g(wrap(XS)), XS)
    moved = func.jvp(lambda x: (x.detach() * x).sum(), (wrap(X),), (wrap(T),))[1]
    close(moved, X @ T)


def test_results_are_free_of_the_graph():
    for result in (
        func.grad(f)(wrap(X)),
        func.jacrev(lambda x: x * x)(wrap(X)),
        func.hessian(f)(wrap(X)),
        func.vjp(f, wrap(X))[0],
        func.vmap(func.grad(f))(wrap(XS)),
    ):
        assert not result.requires_grad


def test_values_that_are_not_finite_have_the_gradients_of_others():
    rows = dt.tensor([[1.0, float("inf")], [float("nan"), 2.0]])
    assert func.vmap(func.grad(lambda r: (r * 3).sum()))(rows).tolist() == [[3.0, 3.0]] * 2
    x, v = rows[0], dt.tensor([1.0, 2.0])
    along = func.jvp(lambda r: dt.stack([r[0], r[1], x[1]]), (x,), (v,))[1]
    assert along.tolist() == [1.0, 2.0, 0.0]
    found = func.vmap(lambda r: func.jvp(lambda a: (a, r.sum()), (x,), (v,))[1])(rows)
    assert found[1].tolist() == [0.0, 0.0]
    assert func.jvp(lambda r: dt.cat([r, x]).cumsum(0)[:1], (x,), (v,))[1].tolist() == [1.0]
