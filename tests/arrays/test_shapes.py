"""Forms, joins, margins and arrays from numbers beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import making, shapes

X = np.random.default_rng(0).normal(size=(2, 3, 4))
V = X[0, 0]
CASES = [
    ("reshape", X, ((4, -1),), {}), ("reshape", X, ((4, 6),), {"order": "F"}), ("ravel", X, (), {}),
    ("transpose", X, ((2, 0, 1),), {}), ("matrix_transpose", X, (), {}),
    ("swapaxes", X, (0, 2), {}), ("moveaxis", X, ((0, 1), (2, 0)), {}), ("rollaxis", X, (2,), {}),
    ("expand_dims", X, ((0, 3),), {}), ("squeeze", X[:1], (), {}),
    ("broadcast_to", V, ((2, 4),), {}), ("tile", X, ((2, 1),), {}), ("repeat", X, (2, 1), {}),
    ("flip", X, (), {}), ("fliplr", X, (), {}), ("rot90", X, (3,), {}), ("roll", X, (1,), {}),
    ("roll", X, ((1, 2), (0, 2)), {}), ("resize", V, ((2, 3),), {}),
]  # fmt: skip
PADS = [
    ("constant", {"constant_values": 3.0}), ("edge", {}), ("reflect", {}), ("symmetric", {}),
    ("wrap", {}), ("linear_ramp", {"end_values": 2.0}), ("mean", {}), ("maximum", {}),
    ("median", {"stat_length": 2}), ("reflect", {"reflect_type": "odd"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x", "args", "more"), CASES)
def test_forms(name, x, args, more):
    got = getattr(shapes, name)(dt.tensor(x), *args, **more)
    np.testing.assert_array_equal(got.numpy(), getattr(np, name)(x, *args, **more))


@pytest.mark.parametrize("name", "concatenate stack vstack hstack dstack column_stack".split())
def test_joins(name):
    for x in (V, X[0]):
        got = getattr(shapes, name)([dt.tensor(x), dt.tensor(x * 2)])
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)([x, x * 2]))


@pytest.mark.parametrize(("mode", "how"), PADS)
def test_pad(mode, how):
    width = ((1, 2), (0, 1), (3, 2))
    got = shapes.pad(dt.tensor(X), width, mode, **how)
    np.testing.assert_allclose(got.numpy(), np.pad(X, width, mode, **how))


def test_parts():
    x = dt.tensor(X)
    for cut in (3, [1], [1, 5, 2]):
        got = shapes.array_split(x, cut, 2)
        for one, two in zip(got, np.array_split(X, cut, 2), strict=True):
            np.testing.assert_array_equal(one.numpy(), two)
    with pytest.raises(ValueError, match="equal division"):
        shapes.split(x, 3, 2)
    assert len(shapes.unstack(x, 1)) == 3
    got = shapes.block([[x[0], x[0]], [x[1], x[1]]])
    np.testing.assert_array_equal(got.numpy(), np.block([[X[0], X[0]], [X[1], X[1]]]))


def test_misfits_are_told():
    with pytest.raises(TypeError, match=r"cannot reshape array of shape \(4,\)"):
        shapes.reshape(dt.zeros(4), (3, 2))
    with pytest.raises(TypeError, match="different numbers of dimensions"):
        shapes.concatenate([dt.zeros(2), dt.zeros(2, 2)])
    with pytest.raises(ValueError, match="not equal to one"):
        shapes.squeeze(dt.zeros(2), 0)
    with pytest.raises(NotImplementedError, match="Unimplemented padding mode"):
        shapes.pad(dt.zeros(2), 1, "odd")


def test_numbers():
    a, b = dt.tensor(0.0, dtype=dt.float64), dt.tensor(3.0, dtype=dt.float64)
    np.testing.assert_allclose(making.linspace(a, b, 5).numpy(), np.linspace(0, 3, 5))
    np.testing.assert_allclose(making.logspace(a, b, 4).numpy(), np.logspace(0, 3, 4))
    got = making.geomspace(a + 1, b + 1, 3).numpy()
    np.testing.assert_allclose(got, np.geomspace(1, 4, 3))
    for name in ("hanning", "hamming", "blackman", "bartlett"):
        np.testing.assert_allclose(
            getattr(making, name)(6).numpy(), getattr(np, name)(6), atol=1e-12
        )
    np.testing.assert_allclose(making.kaiser(6, 2.0).numpy(), np.kaiser(6, 2.0), rtol=1e-6)
    np.testing.assert_array_equal(making.tri(3, 4, 1).numpy(), np.tri(3, 4, 1, dtype=bool))
    np.testing.assert_array_equal(making.indices((2, 3)).numpy(), np.indices((2, 3)))
    for indexing in ("xy", "ij"):
        got = making.meshgrid([dt.arange(2), dt.arange(3)], indexing=indexing)
        for one, two in zip(got, np.meshgrid(range(2), range(3), indexing=indexing), strict=True):
            np.testing.assert_array_equal(one.numpy(), two)
