"""Collectives over the axis of a ``vmap``, also in the body of a loop."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import lax

X = np.float32([[1, 2], [3, 5]])


def over(f):
    return jax.vmap(f, axis_name="i")


def test_trees_and_rows():
    total = over(lambda v: lax.psum({"a": v}, "i"))(X)["a"]
    assert np.asarray(total).tolist() == [[4, 7], [4, 7]]
    turned = over(lambda v: lax.pshuffle(v, "i", [1, 0]))(X)
    assert np.asarray(turned).tolist() == X[::-1].tolist()
    assert np.asarray(over(lambda v: lax.pswapaxes(v, "i", 0))(X)).tolist() == X.T.tolist()
    assert np.asarray(over(lambda v: lax.axis_index("i"))(X)).tolist() == [0, 1]
    assert np.asarray(over(lambda v: lax.pbroadcast(v, "i", 1))(X)).tolist() == [[3, 5], [3, 5]]
    with pytest.raises(ValueError, match="does not represent a permutation"):
        over(lambda v: lax.pshuffle(v, "i", [0, 0]))(X)


def test_in_the_body_of_a_scan():
    f = over(lambda v: lax.scan(lambda c, x: (lax.pmean(lax.mul(c, x), "i"), c), v, X)[0])
    first = (X * X[0]).mean(0)
    assert np.allclose(f(X), np.stack([first * X[1]] * 2))
