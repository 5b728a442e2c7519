"""Softmax, its logarithm, gelu, silu."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain import ops
from disttrain.core import grad, wrap
from disttrain.core.types import dtypes
from disttrain.errors import ConfigError, DimError, DTypeError
from disttrain.ops.functions.nn.softmax import gelu, log_softmax, silu, softmax, softmin
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))


def _reference(x, dim):
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("kind", ["f8", "f4", "f2"])
def test_softmax_along_any_dimension(dim, kind):
    x = X.astype(kind)
    tol = {"f8": 1e-12, "f4": 1e-6, "f2": 2e-3}[kind]
    want = _reference(x.astype("f8"), dim)
    got = softmax(wrap(x), dim).array
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)
    got = log_softmax(wrap(x), dim).array
    np.testing.assert_allclose(got, np.log(want), rtol=tol, atol=4 * tol)
    got = softmin(wrap(x), dim).array
    np.testing.assert_allclose(got, _reference(-x.astype("f8"), dim), rtol=tol, atol=tol)


def test_softmax_of_large_and_infinite_values():
    x = wrap(np.array([[1e4, 0.0, -np.inf], [-np.inf, 5.0, 5.0]]))
    np.testing.assert_allclose(softmax(x, 1).array, [[1, 0, 0], [0, 0.5, 0.5]])


def test_arguments():
    assert softmax(wrap(np.array([1, 1])), 0, dtype=dtypes.float64).tolist() == [0.5, 0.5]
    assert softmax(wrap(np.array(3.0)), 0).item() == 1
    with pytest.raises(DTypeError, match="floating"):
        softmax(wrap(np.array([1, 2])), 0)
    with pytest.raises(DimError, match="dimension 3"):
        softmax(wrap(X), 3)
    with pytest.raises(ConfigError, match="approximate"):
        gelu(wrap(X), approximate="erf")


def test_gelu_and_silu_values():
    x = np.linspace(-6, 6, 41)
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(gelu(wrap(x)).array, exact, rtol=1e-9, atol=1e-15)
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    got = gelu(wrap(x), approximate="tanh").array
    np.testing.assert_allclose(got, 0.5 * x * (1 + np.tanh(u)), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(silu(wrap(x)).array, x / (1 + np.exp(-x)), rtol=1e-12)


def test_gradients():
    for dim in (0, 1, 2):
        check_gradients(lambda x, d=dim: softmax(x, d), X)
        check_gradients(lambda x, d=dim: log_softmax(x, d), X)
    for fn in (gelu, silu, lambda x: gelu(x, approximate="tanh")):
        check_gradients(fn, X * 2)


def test_third_derivative_of_gelu():
    x = wrap(np.array(0.7)).requires_grad_()
    g = gelu(x)
    for _ in range(3):
        (g,) = grad(g, x, create_graph=True)
    phi = math.exp(-0.245) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(g.array, phi * (0.7**3 - 4 * 0.7), rtol=1e-9)


@pytest.mark.parametrize("fn", [ops.softmax, ops.log_softmax])
def test_a_number_may_be_written_to_afterwards(fn):
    x = wrap(np.array(1.25)).requires_grad_()
    y = fn(x, -1)
    y.sigmoid_()
    y.backward()
    assert x.grad.item() == 0.0
