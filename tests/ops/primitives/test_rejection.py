"""Rejection samplers: every number is that of its own key, whatever stands beside it."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import rejection, threefry


def keys(*shape):
    return (
        np.random.default_rng(0)
        .integers(0, 1 << 32, (*shape, 2), np.uint32)
        .view(threefry.KEY)[..., 0]
    )


@pytest.mark.parametrize("log_space", [False, True])
def test_gamma_of_many_keys(log_space):
    k, a = keys(3), np.random.default_rng(1).uniform(0.1, 5, (3, 20))
    how = {"log_space": log_space, "partitionable": True}
    many = rejection._gamma(k, a, **how)
    for i in range(3):
        assert rejection._gamma(k[i], a[i], **how).tolist() == many[i].tolist()


def test_logarithms_of_gamma_numbers():
    k, a = keys(2), np.full((2, 500), 0.05)
    plain = rejection._gamma(k, a, False, True)
    logs = rejection._gamma(k, a, True, True)
    assert np.isfinite(logs).all()
    assert abs(np.exp(logs).mean() - plain.mean()) < 0.05


def test_counts_of_many_keys():
    k, rate = keys(3), np.tile(np.asarray([0.5, 9.0, 30.0], np.float32), (3, 1))
    many = rejection._poisson(k, rate, np.dtype(np.int32), True)
    for i in range(3):
        one = rejection._poisson(k[i], rate[i], np.dtype(np.int32), True)
        assert one.tolist() == many[i].tolist()
    n, p = np.full((3, 2), 50.0, np.float32), np.tile(np.asarray([0.1, 0.5], np.float32), (3, 1))
    many = rejection._binomial(k, n, p, True)
    assert rejection._binomial(k[1], n[1], p[1], True).tolist() == many[1].tolist()


def test_few_tries_of_narrow_types():
    rate = np.asarray([100.0], np.float32)
    assert rejection._poisson(keys(), rate, np.dtype(np.int8), True).dtype == np.int8
