"""Special functions at known values and by their identities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.ops.primitives import special as sp

X = np.array([0.1, 0.5, 1.0, 1.5, 2.0, 3.7, 10.0, 50.5])
EULER = 0.5772156649015329


def test_the_gamma_function_and_its_derivatives():
    np.testing.assert_allclose(sp.lgamma.forward(X), [math.lgamma(x) for x in X], atol=1e-14)
    below = np.array([-0.5, -1.5, -3.2])
    np.testing.assert_allclose(
        sp.lgamma.forward(below), [math.lgamma(x) for x in below], rtol=1e-12
    )
    np.testing.assert_allclose(sp.polygamma.forward(np.array([1.0]), n=0), -EULER)
    np.testing.assert_allclose(sp.polygamma.forward(np.array([1.0]), n=1), math.pi**2 / 6)
    for n in (0, 1, 2):  # psi_n(x + 1) = psi_n(x) + (-1)^n n! / x^(n + 1)
        step = (-1) ** n * math.factorial(n) / X ** (n + 1)
        upper, lower = sp.polygamma.forward(X + 1, n=n), sp.polygamma.forward(X, n=n)
        np.testing.assert_allclose(upper, lower + step, rtol=1e-9, atol=1e-12)


def test_the_incomplete_gamma_functions_are_two_parts_of_one():
    a, x = np.meshgrid([0.5, 1.0, 4.0, 20.0], [0.01, 0.7, 3.0, 25.0])
    low, high = sp.igamma.forward(a, x), sp.igammac.forward(a, x)
    np.testing.assert_allclose(low + high, 1, rtol=1e-12)
    np.testing.assert_allclose(low[:, 1], 1 - np.exp(-x[:, 1]), rtol=1e-12)  # a = 1
    np.testing.assert_allclose(low[:, 0], [math.erf(math.sqrt(v)) for v in x[:, 0]], rtol=1e-10)


def test_error_functions():
    y = np.array([-0.999, -0.5, 0.0, 1e-8, 0.3, 0.99])
    back = [math.erf(v) for v in sp.erfinv.forward(y)]
    np.testing.assert_allclose(back, y, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(sp.erfc.forward(X[:6]), [math.erfc(v) for v in X[:6]], rtol=1e-6)
    assert sp.erfinv.forward(np.array([1.0, -1.0])).tolist() == [np.inf, -np.inf]


def test_bessel_functions_by_their_integral():
    angle = (np.arange(2000) + 0.5) * math.pi / 2000
    for x in (0.0, 0.3, 2.5, 7.9, 8.1, 15.0):
        wave = np.exp(x * np.cos(angle))
        np.testing.assert_allclose(sp.i0.forward(np.array([x])), wave.mean(), rtol=1e-6)
        np.testing.assert_allclose(
            sp.i1.forward(np.array([x])), (wave * np.cos(angle)).mean(), rtol=1e-6, atol=1e-12
        )


@pytest.mark.parametrize("name", ["copysign", "hypot", "heaviside", "nextafter"])
def test_of_two_as_numpys(name):
    a, b = np.array([1.0, -0.0, -3.0, 0.0]), np.array([-0.0, 2.0, 4.0, 0.5])
    assert getattr(sp, name).forward(a, b).tolist() == getattr(np, name)(a, b).tolist()


def test_whole_numbers():
    a, b = np.array([12, -18, 0, 7]), np.array([18, 12, 5, 7])
    assert sp.gcd.forward(a, b).tolist() == [6, 6, 5, 7]
    assert sp.lcm.forward(a, b).tolist() == [36, 36, 0, 7]
    assert sp.signbit.forward(np.array([-0.0, 0.0, -2.0])).tolist() == [True, False, True]


def test_incomplete_gamma_functions_of_large_numbers():
    a = np.array([999.0, 1000.0, 1e4, 1e5, 1e30])
    lower, upper = sp.igamma.forward(a, a), sp.igammac.forward(a, a)
    np.testing.assert_allclose(lower, 0.5 + 1 / (3 * np.sqrt(2 * np.pi * a)), atol=1e-6)
    np.testing.assert_allclose(lower + upper, 1.0, rtol=1e-12)
    near = sp.igamma.forward(np.array([999.999999, 1000.0]), np.array([950.0, 950.0]))
    np.testing.assert_allclose(near[0], near[1], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma_below_zero(n):
    x = np.array([-0.25, -7.3, -300.6])
    out = sp.polygamma.forward(x, n=n)
    step = (-1.0) ** n * math.factorial(n) / x ** (n + 1)  # from one number to the next
    np.testing.assert_allclose(sp.polygamma.forward(x + 1, n=n), out + step, rtol=1e-8)
    assert abs(sp.polygamma.forward(np.array([-3.0, 0.0]), n=n)).tolist() == [math.inf] * 2
