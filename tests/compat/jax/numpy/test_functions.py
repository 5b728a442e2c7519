"""``jax.numpy`` beside NumPy: values, JAX's types and weak types, errors in its classes."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax.numpy as jnp
from disttrain.compat.jax.numpy import fft, linalg

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
I = np.array([3, 1, 2], np.int32)
UNARY = "sin cos tanh exp log1p sqrt floor sign square abs negative isnan cbrt rint sinc".split()
BINARY = "add subtract multiply divide floor_divide remainder maximum less arctan2 hypot".split()
SHAPES = [
    ("reshape", (3, 2)), ("transpose", None), ("ravel", None), ("flip", None), ("cumsum", None),
    ("sort", None), ("argsort", None), ("tile", 2), ("repeat", 2), ("expand_dims", 0),
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_elements(name):
    with np.errstate(invalid="ignore"):
        want = getattr(np, name)(X)
    got = getattr(jnp, name)(jnp.asarray(X))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_pairs(name):
    got = getattr(jnp, name)(jnp.asarray(X), jnp.asarray(X[1] + 0.5))
    np.testing.assert_allclose(np.asarray(got), getattr(np, name)(X, X[1] + 0.5), rtol=1e-5)


@pytest.mark.parametrize(("name", "arg"), SHAPES)
def test_forms(name, arg):
    args = () if arg is None else (arg,)
    got = getattr(jnp, name)(jnp.asarray(X), *args)
    np.testing.assert_allclose(np.asarray(got), getattr(np, name)(X, *args), rtol=1e-5)


def test_types_are_jaxs():
    i, x = jnp.asarray(I), jnp.asarray(X)
    half = jnp.ones(2, jnp.bfloat16)
    for value, want in (
        (i + 1, "int32"), (i + 1.5, "float32"), (i / 2, "float32"), (jnp.mean(i), "float32"),
        (i.sum(), "int32"), (jnp.argmax(x), "int32"), (jnp.int8(1) + 1, "int8"),
        (half + 1.5, "bfloat16"), (half + x[0, :2], "float32"), (x * 1j, "complex64"),
        (jnp.uint8(1) + jnp.int8(1), "int16"), (jnp.uint32(1) + jnp.int32(1), "int32"),
        (jnp.arange(3), "int32"), (jnp.zeros(2), "float32"), (jnp.asarray(np.ones(2)), "float32"),
        (jnp.sum(jnp.asarray([True])), "int32"), (jnp.sin(i), "float32"), (i @ i, "int32"),
    ):  # fmt: skip
        assert value.dtype == want
    assert jnp.asarray(1.0).weak_type and (jnp.asarray(1) + 1).weak_type
    assert not jnp.ones(2).weak_type and not jnp.sum(jnp.asarray(1)).weak_type
    with pytest.warns(UserWarning, match="will be truncated to dtype float32"):
        assert jnp.zeros(2, "float64").dtype == "float32"
    assert jnp.float32 == np.float32 and jnp.float32(2).dtype == "float32"


def test_reductions_take_numpys_arguments():
    x, flags = jnp.asarray(X), jnp.asarray([True, False, True])
    for name in ("sum", "mean", "max", "var", "all"):
        for more in ({"axis": 0}, {"axis": (0, 1), "keepdims": True}):
            got = getattr(jnp, name)(x, **more)
            np.testing.assert_allclose(np.asarray(got), getattr(np, name)(X, **more), rtol=1e-5)
    got = jnp.max(x, axis=1, where=flags, initial=-9.0)
    np.testing.assert_allclose(
        np.asarray(got), np.max(X, axis=1, where=np.asarray(flags), initial=-9.0)
    )
    with pytest.raises(NotImplementedError, match="'out' argument"):
        jnp.sum(x, out=x)
    with pytest.raises(ValueError, match="axis 3 is out of bounds"):
        jnp.sum(x, axis=3)


def test_errors_are_of_jaxs_classes():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"add got incompatible shapes for broadcasting: \(3,\), "):
        x + jnp.ones(4)
    with pytest.raises(TypeError, match="add requires ndarray or scalar arguments, got"):
        jnp.add([1], 2)
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(TypeError, match="cannot reshape"):
        x.reshape(2, 2)
    with pytest.raises(ValueError, match="None is not a valid value"):
        jnp.array(None)
    with pytest.raises(OverflowError):
        jnp.array(300, jnp.uint8)
    with pytest.raises(TypeError, match="positional arguments"):
        jnp.ravel(x, "C", 3)


def test_what_takes_functions():
    x = jnp.asarray(X)
    got = jnp.apply_along_axis(lambda row: row.max() - row.min(), 1, x)
    np.testing.assert_allclose(np.asarray(got), np.ptp(X, 1), rtol=1e-6)
    got = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x[0])
    np.testing.assert_allclose(np.asarray(got), X @ X[0], rtol=1e-5)
    got = jnp.piecewise(x, [x < 0, x > 1], [lambda t: -t, 1.0])
    np.testing.assert_allclose(np.asarray(got), np.where(X < 0, -X, np.where(X > 1, 1, 0)))
    assert jnp.einsum("ij->j", x).shape == (3,)
    assert jnp.einsum(x, [0, 1], x, [2, 1], [0, 2]).shape == (2, 2)
    assert jnp.result_type(x, 1) == "float32" and jnp.size(x) == 6


def test_makers():
    np.testing.assert_array_equal(np.asarray(jnp.eye(2, 3, 1)), np.eye(2, 3, 1))
    np.testing.assert_allclose(np.asarray(jnp.linspace(0, 1, 5)), np.linspace(0, 1, 5))
    assert jnp.linspace(0, 4, 5, dtype=int).tolist() == [0, 1, 2, 3, 4]
    assert jnp.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert jnp.full_like(jnp.asarray(I), 2.7).tolist() == [2, 2, 2]
    assert jnp.array([jnp.int8(1), 2]).dtype == "int8"
    one, two = jnp.meshgrid(jnp.arange(2), jnp.arange(3))
    assert one.shape == two.shape == (3, 2)


def test_matrices_and_transforms():
    a = jnp.asarray(X[:, :2] + 2 * np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(np.asarray(linalg.inv(a) @ a), np.eye(2), atol=1e-5)
    assert linalg.svd(a).S.shape == (2,) and linalg.eigh(a @ a.T).eigenvalues.shape == (2,)
    with pytest.raises(ValueError, match=r"must have shape \[..., n, n\]"):
        linalg.inv(jnp.asarray(X))
    np.testing.assert_allclose(np.asarray(fft.ifft(fft.fft(jnp.asarray(X)))), X, atol=1e-6)
    with pytest.raises(ValueError, match="only real valued inputs"):
        fft.rfft(a + 1j)
