"""One function over many examples."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func import grad, vmap

X = dt.arange(6.0).reshape(2, 3)


def test_dimensions_in_and_out():
    assert vmap(lambda r: r.sum())(X).tolist() == X.sum(1).tolist()
    assert vmap(lambda r: r * 2, in_dims=1, out_dims=1)(X).tolist() == (X * 2).tolist()
    assert vmap(lambda r, s: r + s, in_dims=(0, None))(X, dt.ones(3)).tolist() == (X + 1).tolist()
    found = vmap(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))({"a": X, "b": 2.0})
    assert found.tolist() == (X * 2).tolist()


def test_chunks_give_the_same():
    for size in (1, 2, 5):
        assert vmap(lambda r: r.cumsum(0), chunk_size=size)(X).tolist() == X.cumsum(1).tolist()


def test_over_and_under_gradients():
    per_example = vmap(grad(lambda r: (r**2).sum()))(X)
    assert per_example.tolist() == (2 * X).tolist()
    assert grad(lambda x: vmap(lambda r: (r**2).sum())(x).sum())(X).tolist() == (2 * X).tolist()


def test_each_example_may_have_numbers_of_its_own():
    with pytest.raises(RuntimeError, match="random"):
        vmap(lambda r: r + dt.rand(3))(X)
    apart = vmap(lambda r: r * 0 + dt.rand(3), randomness="different")(X)
    assert apart[0].tolist() != apart[1].tolist()
    alike = vmap(lambda r: r * 0 + dt.rand(3), randomness="same")(X)
    assert alike[0].tolist() == alike[1].tolist()


def test_sizes_must_agree():
    for call in (
        lambda: vmap(lambda a, b: a + b)(X, dt.ones(3, 3)), lambda: vmap(dt.sin)(dt.tensor(1.0)),
        lambda: vmap(dt.sin, in_dims=2)(X), lambda: vmap(dt.sin, in_dims=None)(X),
    ):  # fmt: skip
        with pytest.raises((ValueError, RuntimeError, IndexError)):
            call()
