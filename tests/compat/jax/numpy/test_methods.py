"""Operators and methods of JAX's arrays, their indices, and what other libraries make of them."""

from __future__ import annotations

import copy
import operator
import pickle
import threading

import numpy as np
import pytest

import disttrain.compat.jax as jax
import disttrain.compat.jax.numpy as jnp

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_numpy_and_arrays_work_together():
    x = jnp.asarray(X)
    for got in (np.float64(2) * x, np.ones(3) * x, x * np.ones(3), x + np.float32(1)):
        assert type(got) is type(x) and got.dtype == "float32"
    assert isinstance(np.asarray(x), np.ndarray) and np.array(x, float).dtype == float
    assert np.sum(x).item() == 15
    np.testing.assert_array_equal(np.from_dlpack(x), X)


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow lt ge eq matmul".split())
def test_operators(name):
    fn, square = getattr(operator, name), X[:, :2] + 1
    got = fn(jnp.asarray(square), jnp.asarray(square))
    np.testing.assert_allclose(np.asarray(got), fn(square, square), rtol=1e-6)


def test_arrays_are_immutable_and_have_no_hash():
    x = jnp.asarray(X)
    with pytest.raises(TypeError, match=r"immutable.*x\.at\[idx\]\.set"):
        x[0] = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    y = x
    y += 1
    assert x[0, 0].item() == 0 and y[0, 0].item() == 1


def test_copies():
    x = jnp.asarray(2.0)
    for again in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.item() == 2 and again.weak_type and again is not x


def test_pythons_numbers():
    x = jnp.asarray(X)
    assert (
        float(x[1, 2]) == 5.0 and int(x[1, 2]) == 5 and bool(x[0, 1]) and x.tolist() == X.tolist()
    )
    assert [0, 1, 2][jnp.int32(1)] == 1 and f"{x[0, 1]:.1f}" == "1.0" and len(x) == 2
    for fn, error in ((float, TypeError), (bool, ValueError), (operator.index, TypeError)):
        with pytest.raises(error):
            fn(x)
    with pytest.raises(ValueError, match="size 1"):
        x.item()
    with pytest.raises(TypeError, match="0-d"):
        iter(x[0, 0])


def test_indices():
    x, at = jnp.asarray(X), jnp.asarray([0, 1, 0])
    np.testing.assert_array_equal(np.asarray(x[::-1, at]), X[::-1, [0, 1, 0]])
    assert x[7].tolist() == X[1].tolist() and x[-9].tolist() == X[0].tolist()
    assert x[x > 2].tolist() == [3, 4, 5] and x[None, ..., 0].shape == (1, 2)
    for key, error in (([0, 1], TypeError), (1.0, TypeError), ("a", TypeError),
                       ((0, 0, 0), IndexError), (jnp.asarray([True]), IndexError)):  # fmt: skip
        with pytest.raises(error):
            x[key]


def test_updates():
    x = jnp.arange(4.0)
    assert x.at[1].set(9).tolist() == [0, 9, 2, 3] and x.tolist() == [0, 1, 2, 3]
    assert x.at[jnp.asarray([1, 1, 8])].add(1).tolist() == [0, 3, 2, 3]
    assert x.at[jnp.asarray([8])].add(1, mode="clip").tolist() == [0, 1, 2, 4]
    assert x.at[1:].multiply(2).tolist() == [0, 2, 4, 6]
    assert x.at[2].divide(2).tolist() == [0, 1, 1, 3] and x.at[2].power(3)[2].item() == 8
    assert x.at[0].apply(jnp.exp)[0].item() == 1
    assert np.isnan(x.at[9].get(mode="fill").item()) and x.at[9].get().item() == 3
    assert x.at[9].get(mode="fill", fill_value=5).item() == 5
    with pytest.warns(FutureWarning, match="incompatible types"):
        jnp.arange(3).at[0].set(1.5)
    with pytest.raises(ValueError, match="Unknown gather mode"):
        x.at[0].get(mode="odd")


def test_arrays_are_shared_by_threads():
    x, found = jnp.arange(8.0), []

    def work():
        for _ in range(50):
            found.append(float((x * 2).at[0].set(1).sum()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert set(found) == {57.0}


def test_places_that_are_not_there_have_no_gradient():
    x = jnp.arange(3.0)
    assert float(x[7]) == 2 and jax.grad(lambda v: v[7])(x).tolist() == [0, 0, 0]
    assert jax.grad(lambda v: v[-1])(x).tolist() == [0, 0, 1]
    assert jax.jit(jax.grad(lambda v: v[9] + v[1]))(x).tolist() == [0, 1, 0]


def test_where_takes_two_values_or_none():
    with pytest.raises(TypeError, match="position 2"):
        jnp.where(jnp.ones(2) > 0, jnp.ones(2))
