"""Softmax, its logarithm, and the smooth steps beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.ops.primitives import softmax as sm

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=60) * 4, [0.0, -0.0, 30.0, -30.0]])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_along_any_dimension(kind, dim):
    a = (RNG.normal(size=(3, 17, 4)) * 5).astype(kind)
    wide = a.astype("f8")
    weights = np.exp(wide - wide.max(dim, keepdims=True))
    wanted = weights / weights.sum(dim, keepdims=True)
    close = {"rtol": 1e-5, "atol": 1e-7} if kind is np.float32 else {"rtol": 1e-12}
    np.testing.assert_allclose(sm.softmax_.forward(a, dim=dim), wanted, **close)
    np.testing.assert_allclose(
        sm.log_softmax_.forward(a, dim=dim), np.log(wanted), rtol=1e-4, atol=1e-5
    )
    g, y = RNG.normal(size=a.shape).astype(kind), wanted.astype(kind)
    back = sm.softmax_backward.forward(g, y, dim=dim)
    np.testing.assert_allclose(back, y * (g - (g * y).sum(dim, keepdims=True)), atol=1e-5)
    back = sm.log_softmax_backward.forward(g, np.log(y), dim=dim)
    np.testing.assert_allclose(back, g - y * g.sum(dim, keepdims=True), atol=1e-4)


def test_large_numbers_do_not_overflow():
    a = np.array([[1e4, 1e4, -1e4], [-np.inf, 0.0, 0.0]])
    assert sm.softmax_.forward(a, dim=1).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]


FORMULAS = {
    "gelu_erf": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "silu_": lambda x: x / (1 + math.exp(-x)),
    "softplus_": lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_smooth_steps_are_their_formulas(name):
    wanted = [FORMULAS[name](x) for x in X]
    for kind, rtol in ((np.float32, 3e-6), (np.float64, 1e-12)):
        found = getattr(sm, name).forward(X.astype(kind))
        np.testing.assert_allclose(
            found, wanted, rtol=rtol, atol=2e-6 if kind is np.float32 else 1e-12
        )


@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh", "silu_"])
def test_their_gradients_by_differences(name):
    fn = FORMULAS[name]
    slopes = [(fn(x + 1e-6) - fn(x - 1e-6)) / 2e-6 for x in X]
    back = getattr(sm, {"silu_": "silu_backward"}.get(name, f"{name}_backward"))
    np.testing.assert_allclose(
        back.forward(np.full(X.shape, 2.0), X), np.multiply(2, slopes), atol=1e-7
    )
