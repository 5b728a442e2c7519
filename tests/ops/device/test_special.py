"""Special functions on devices: computed in float64, rounded once, against known values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.on_device import agree, on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


KNOWN = {
    "lgamma": [(0.5, 0.5723649429247001), (1.0, 0.0), (10.0, 12.801827480081469)],
    "erfc": [(0.0, 1.0), (1.0, 0.15729920705028513), (-1.0, 1.8427007929497148)],
    "erfinv": [(0.0, 0.0), (0.5, 0.4769362762044699), (-0.5, -0.4769362762044699)],
    "i0": [(0.0, 1.0), (1.0, 1.2660658777520084)],
    "i1": [(0.0, 0.0), (1.0, 0.5651591039924851)],
}


@pytest.mark.parametrize(
    ("kind", "tol"), [("f8", 1e-13), ("f4", 1e-6), ("f2", 1e-3), (BF16, 1e-2)], ids=str
)
@pytest.mark.parametrize("name", KNOWN)
def test_known_values_in_every_type(name, kind, tol):
    x, want = np.array(KNOWN[name]).T
    (found,) = on_device(name, x.astype(kind))
    assert found.dtype == np.dtype(kind)
    np.testing.assert_allclose(found.astype("f8"), want, rtol=tol, atol=tol)


def test_derivatives_of_digamma():
    x = np.array([1.0, 2.0, 0.5])
    gamma = 0.5772156649015329
    (zeroth,) = on_device("polygamma", x, n=0)
    np.testing.assert_allclose(zeroth, [-gamma, 1 - gamma, -gamma - 2 * np.log(2)], rtol=1e-12)
    (first,) = on_device("polygamma", x, n=1)
    np.testing.assert_allclose(first[:2], [np.pi**2 / 6, np.pi**2 / 6 - 1], rtol=1e-12)
    (second,) = on_device("polygamma", x, n=2)
    assert second[0] == pytest.approx(-2.4041138063191885)


def test_the_two_incomplete_gammas_make_one_whole():
    a, x = np.array([0.5, 1.0, 3.0]), np.array([0.5, 2.0, 3.0])
    (low,), (high,) = on_device("igamma", a, x), on_device("igammac", a, x)
    np.testing.assert_allclose(low + high, 1.0, rtol=1e-12)
    assert low[1] == pytest.approx(1 - np.exp(-2.0))
    agree("igamma", a.astype("f4"), 2.0, tol=1e-6)


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="not defined for complex numbers"):
        on_device("erfc", np.ones(2, "c8"))
