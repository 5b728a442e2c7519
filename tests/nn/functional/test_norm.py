"""Normalisations against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import DisttrainError

F = dt.nn.functional
X = np.random.default_rng(0).normal(size=(4, 6, 5)) * 2 + 1


def scaled(x, over, eps=1e-5):
    return (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + eps)


def test_each_divides_by_its_own_spread():
    x = dt.from_numpy(X)
    cases = {
        "batch": (F.batch_norm(x, None, None, training=True), scaled(X, (0, 2))),
        "layer": (F.layer_norm(x, (6, 5)), scaled(X, (1, 2))),
        "instance": (F.instance_norm(x), scaled(X, (2,))),
        "group": (F.group_norm(x, 3), scaled(X.reshape(4, 3, 2, 5), (2, 3)).reshape(X.shape)),
        "rms": (
            F.rms_norm(x, (5,), eps=1e-5),
            X / np.sqrt((X**2).mean(2, keepdims=True) + 1e-5),
        ),
    }
    for name, (found, wanted) in cases.items():
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-9, err_msg=name)


def test_running_statistics_move_by_the_momentum_and_serve_evaluation():
    x, mean, var = dt.from_numpy(X), dt.zeros(6).double(), dt.ones(6).double()
    F.batch_norm(x, mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * X.mean((0, 2)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * X.var((0, 2), ddof=1))
    found = F.batch_norm(x, mean, var, training=False).numpy()
    shape = (1, 6, 1)
    wanted = (X - mean.numpy().reshape(shape)) / np.sqrt(var.numpy().reshape(shape) + 1e-5)
    np.testing.assert_allclose(found, wanted)


def test_neighbouring_channels():
    found = F.local_response_norm(dt.from_numpy(X), 3, alpha=0.5, beta=0.75, k=2.0).numpy()
    square = np.pad(X**2, ((0, 0), (1, 1), (0, 0)))
    near = sum(square[:, i : i + 6] for i in range(3)) / 3
    np.testing.assert_allclose(found, X / (2 + 0.5 * near) ** 0.75)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.group_norm(x, 4),
        lambda x: F.batch_norm(x[:1, :, :1], None, None, training=True),
    ],
)
def test_what_cannot_be_normalised_is_refused(call):
    with pytest.raises((DisttrainError, ValueError, RuntimeError)):
        call(dt.from_numpy(X))
