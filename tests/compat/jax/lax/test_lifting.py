"""``lax`` over native functions: weak types, trees, errors in JAX's classes; loops and branches."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import lax

X = np.float32([[1, -2, 3], [0.5, 4, -1]])


def test_weak_types_and_trees():
    assert lax.add(1.0, 2.0).weak_type and not lax.add(np.float32(1), 2.0).weak_type
    assert lax.full((2,), 1.5).weak_type and not lax.full((2,), 1.5, np.float32).weak_type
    whole = lax.reduce({"a": X}, {"a": 0.0}, lambda p, q: {"a": lax.add(p["a"], q["a"])}, (0,))
    assert np.asarray(whole["a"]).tolist() == [1.5, 2.0, 2.0]
    top, at = lax.top_k(X, 2)
    assert np.asarray(at).tolist() == [[2, 0], [1, 0]] and at.dtype == np.int32
    keys, values = lax.sort((X, X), dimension=0)
    assert np.array_equal(keys, values)


def test_a_scan_of_a_tree():
    def body(c, x):
        return {"h": lax.tanh(lax.add(c["h"], x)), "n": lax.add(c["n"], 1)}, (c["h"], None)

    carry, (hs, nothing) = lax.scan(body, {"h": np.zeros(3, np.float32), "n": 0}, X)
    assert int(carry["n"]) == 2 and nothing is None and hs.shape == (2, 3)
    f = lambda h: lax.reduce_sum(lax.scan(body, {"h": h, "n": 0}, X)[0]["h"], (0,))
    h = np.float32([0.1, 0.2, 0.3])
    assert np.allclose(jax.grad(f)(h), jax.jit(jax.grad(f))(h))
    assert jax.jit(jax.vmap(jax.grad(f)))(np.stack([h, -h])).shape == (2, 3)


def test_loops_that_data_decide():
    f = jax.jit(lambda v: lax.while_loop(lambda s: lax.lt(s[1], v), lambda s: (
        lax.mul(s[0], 2), lax.add(s[1], 1)), (np.int32(1), np.int32(0)))[0])  # fmt: skip
    assert [int(f(np.int32(n))) for n in (0, 3, 10)] == [1, 8, 1024]
    with pytest.raises(ValueError, match="does not work for lax"):
        jax.grad(lambda v: lax.while_loop(lambda s: lax.lt(s, 9.0), lambda s: lax.mul(s, v), v))(
            2.0
        )
    g = jax.grad(lambda v: lax.fori_loop(0, 3, lambda i, c: lax.mul(c, v), v))
    assert float(g(2.0)) == 32.0


def test_branches():
    f = jax.jit(lambda p, v: lax.cond(p, lambda v: lax.sin(v), lambda v: lax.neg(v), v))
    assert float(f(False, 2.0)) == -2.0 and float(f(True, 0.0)) == 0.0
    assert float(lax.switch(7, [lambda v: v, lambda v: lax.neg(v)], 3.0)) == -3.0
    rows = jax.vmap(lambda i, v: lax.switch(i, [lambda v: v, lambda v: lax.neg(v)], v))(
        np.int32([0, 1]), np.float32([1, 2])
    )
    assert np.asarray(rows).tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: lax.add(X, 1), TypeError, "Tip: jnp.add"),
        (lambda: lax.scan(lambda c, x: c, 0.0, X), TypeError, "must be a pair, got ~float32"),
        (lambda: lax.scan(lambda c, x: ([c], x), (0.0,), X), TypeError, "same pytree structure"),
        (lambda: lax.scan(lambda c, x: (x, x), np.float32(0), X), TypeError, "shapes do not match"),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, (X, X[:1])), ValueError, "different leading"),
        (lambda: lax.while_loop(lambda s: s, lambda s: s, X), TypeError, "boolean scalar"),
        (lambda: lax.cond(X, lambda: 1, lambda: 2), TypeError, "Pred must be a scalar"),
        (lambda: lax.cond(True, lambda: 1, lambda: 2.0), TypeError, "equal output types"),
        (lambda: lax.switch(0, []), ValueError, "Empty branch"),
        (lambda: lax.neg("a"), TypeError, "as a JAX value"),
    ],
)
def test_errors_in_the_words_of_jax(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
