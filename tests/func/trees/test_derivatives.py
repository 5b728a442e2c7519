"""Derivatives of functions of trees of tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.derivatives import Derivatives
from tests.support.borders import BORDER

D = Derivatives(BORDER)


def loss(params, x):
    return (params["w"] * x).sum() + params["b"] ** 2


def test_gradients_have_the_form_of_what_they_are_of():
    params = {"w": dt.ones(3), "b": 2.0}
    x = dt.tensor([1.0, 2.0, 3.0])
    value, grads = D.value_and_grad(loss)(params, x)
    assert float(value) == 10 and grads["w"].tolist() == [1, 2, 3] and float(grads["b"]) == 4
    both = D.grad(loss, argnums=(0, 1))(params, x)
    assert both[1].tolist() == [1, 1, 1]
    grads, aux = D.grad(lambda w: ((w * w).sum(), {"twice": 2 * w}), has_aux=True)(x)
    assert grads.tolist() == aux["twice"].tolist()


def test_forward_and_back():
    x = dt.tensor([1.0, 2.0])
    out, moved = D.jvp(lambda t: {"y": t[0] * t[1]}, ((x, 3.0),), ((dt.ones(2), 0.0),))
    assert out["y"].tolist() == [3, 6] and moved["y"].tolist() == [3, 3]
    out, pull = D.vjp(lambda t: [t * t], x)
    assert pull([dt.ones(2)])[0].tolist() == [2, 4]
    out, push = D.linearize(lambda t: t * t, x)
    assert push(dt.ones(2)).tolist() == [2, 4]


def test_integers_have_no_derivatives():
    _, pull = D.vjp(lambda n, x: n * x, dt.tensor(2), dt.tensor(3.0))
    assert pull(dt.tensor(1.0))[0] is None
    with pytest.raises(TypeError, match="grad requires real- or complex-valued inputs"):
        D.grad(lambda n: n * 1.0)(dt.tensor(2))
    with pytest.raises(TypeError, match=r"use func\.vjp directly"):
        D.grad(lambda x: x > 0)(dt.tensor(2.0))
    with pytest.raises(TypeError, match=r"arguments to func\.jvp must be tuples or lists"):
        D.jvp(lambda x: x, dt.ones(1), dt.ones(1))
