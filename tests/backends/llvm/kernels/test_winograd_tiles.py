"""Transforms of places for minimal filtering, as sums of numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.backends.llvm.kernels.winograd_tiles import Code, Shape


class _Numbers(Code):
    """The sums themselves, in place of text that computes them."""

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def negative(self, a):
        return -a


def _matrix(run, count):
    return np.array([run([float(k == j) for k in range(count)]) for j in range(count)]).T


_WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@pytest.mark.parametrize("products", [3, 4])
def test_products_of_tiles_are_convolutions(products):
    code = _Numbers(Shape(1, products, 1), 8)
    before = _matrix(lambda d: code.before(d, products), 4)
    after = _matrix(code.after, products)
    taps = products - 1
    for d, w in itertools.product(np.eye(4), np.eye(3)[:taps]):
        made = after @ ((_WEIGHTS[:products] @ w) * (before @ d))
        assert np.allclose(made, [sum(w[t] * d[k + t] for t in range(taps)) for k in range(2)])


@pytest.mark.parametrize("products", [3, 4])
def test_gradients_are_the_adjoint(products):
    code = _Numbers(Shape(1, products, 1), 8)
    assert np.array_equal(
        _matrix(lambda g: code.apart(g, products), 2), _matrix(code.after, products).T
    )


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_text_calls_registers_of_the_size_that_is_asked_for(lanes):
    assert f"<{lanes} x float>" in str(Code(Shape(4, 4, 2), lanes))
