"""Derivatives along a direction."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func import jvp, vjp

X, V = dt.tensor([1.0, 2.0]), dt.tensor([0.5, -1.0])


@pytest.mark.parametrize(
    "fn", [dt.sin, lambda x: (x * x).sum(), lambda x: x.softmax(0), lambda x: x.flip(0) / x]
)
def test_forward_and_backward_agree(fn):
    out, along = jvp(fn, (X,), (V,))
    assert out.tolist() == fn(X).tolist()
    _, pull = vjp(fn, X)
    g = dt.ones_like(out)
    assert along.sum().item() == pytest.approx((pull(g)[0] * V).sum().item(), rel=1e-5, abs=1e-6)


def test_several_arguments_and_more_results():
    out, along = jvp(lambda a, b: a * b, (X, V), (V, X))
    assert along.tolist() == (V * V + X * X).tolist()
    out, along, aux = jvp(lambda a: (a * 2, a + 1), (X,), (V,), has_aux=True)
    assert along.tolist() == (2 * V).tolist() and aux.tolist() == (X + 1).tolist()


def test_a_constant_has_no_derivative():
    assert jvp(lambda x: dt.ones(2), (X,), (V,))[1].tolist() == [0.0, 0.0]


def test_directions_are_as_the_arguments():
    for tangents in ((dt.ones(3),), (V, V), V):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            jvp(dt.sin, (X,), tangents)


def test_numbers_of_primals_may_decide():
    def f(x):
        return x * 2 if x.sum() > 0 else x * float(x[0])

    assert jvp(f, (X,), (V,))[1].tolist() == (2 * V).tolist()
    assert jvp(f, (-X,), (V,))[1].tolist() == (-V).tolist()


def test_the_sign_of_complex_numbers_turns():
    z, v = dt.tensor([3.0 + 4.0j]), dt.tensor([1.0j])
    step = 1e-3
    wanted = (dt.sgn(z + v * step) - dt.sgn(z - v * step)) / (2 * step)
    assert dt.allclose(jvp(dt.sgn, (z,), (v,))[1], wanted, atol=1e-3)


@pytest.mark.parametrize("wrong", [None, (), 1, [1.0]])
def test_results_must_be_tensors(wrong):
    with pytest.raises(RuntimeError, match=r"non-empty output|only tensors"):
        jvp(lambda x: wrong, (X,), (V,))
    with pytest.raises(RuntimeError, match=r"non-empty output|only tensors"):
        vjp(lambda x: wrong, X)


@pytest.mark.parametrize(
    ("primals", "tangents", "match"),
    [
        (X, (V,), "be a tuple"),
        ((X,), [V], "same python structure"),
        ((X, X), (V,), "same python structure"),
        (("one",), (V,), "only contain Tensors"),
        ((), (), "at least one Tensor"),
    ],
)
def test_primals_and_tangents_go_together(primals, tangents, match):
    with pytest.raises(RuntimeError, match=match):
        jvp(lambda *a: a[0], primals, tangents)


def test_strict_wants_results_that_move():
    jvp(lambda x: (x, X), (X,), (V,))
    with pytest.raises(RuntimeError, match="strict"):
        jvp(lambda x: (x, X), (X,), (V,), strict=True)
