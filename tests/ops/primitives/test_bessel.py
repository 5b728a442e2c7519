"""Bessel functions: tabulated values, identities between them, seams of their formulas, ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.primitives import bessel as b

# Abramowitz and Stegun, tables 9.1, 9.8, 10.11
KNOWN = {
    "bessel_j0": {0: 1, 1: 0.765197686557966551, 10: -0.245935764451348335},
    "bessel_j1": {0: 0, 1: 0.440050585744933516, 10: 0.0434727461688614367},
    "bessel_y0": {1: 0.0882569642156769580, 10: 0.0556711672835993914},
    "bessel_y1": {1: -0.781212821300288716, 10: 0.249015424206953883},
    "modified_bessel_k0": {1: 0.421024438240708333, 5: 0.00369109833404259418},
    "modified_bessel_k1": {1: 0.601907230197234574, 5: 0.00404461344545216421},
    "scaled_modified_bessel_k0": {1: 1.14446307980689452, 100: 0.12517562165912657},
    "scaled_modified_bessel_k1": {1: 1.63615348626325785, 100: 0.12579995047957854},
    "spherical_bessel_j0": {0: 1, 1: math.sin(1), -2: math.sin(2) / 2, 0.01: 0.99998333341666646},
    "airy_ai": {0: 0.355028053887817240, 1: 0.135292416312881416, -1: 0.535560883292352119,
                5: 0.000108344428136074417, -10: 0.0402412384864431907},
}  # fmt: skip
SEAMS = {"j": (4.0, 25.0), "y": (4.0, 25.0), "k": (2.0,), "a": (-9.0, 2.0)}


@pytest.mark.parametrize("name", KNOWN)
def test_known_values(name):
    x, want = np.array(list(KNOWN[name].items()), "f8").T
    found = getattr(b, name)(dt.tensor(x))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-13, atol=1e-15)
    assert not getattr(b, name)(dt.tensor(x).requires_grad_()).requires_grad
    for kind in (dt.float16, dt.bfloat16, dt.complex64):
        with pytest.raises(TypeError, match=name):
            getattr(b, name)(dt.ones(2, dtype=kind))


def test_formulas_meet():
    for name in KNOWN:
        for seam in SEAMS.get(name.replace("modified_", "").replace("scaled_", "")[7:8] or "a", ()):
            at = dt.tensor([seam * (1 - 1e-15), seam, seam * (1 + 1e-15)], dtype=dt.float64)
            found = getattr(b, name)(at).numpy()
            np.testing.assert_allclose(found, found[1], rtol=1e-12)


def test_the_wronskian():
    x = dt.linspace(0.05, 80, 900, dtype=dt.float64)
    found = b.bessel_j1(x) * b.bessel_y0(x) - b.bessel_j0(x) * b.bessel_y1(x)
    np.testing.assert_allclose(found.numpy(), 2 / (np.pi * x.numpy()), rtol=1e-11)
    i0, i1 = dt.special.i0e(x), dt.special.i1e(x)
    k0, k1 = b.scaled_modified_bessel_k0(x), b.scaled_modified_bessel_k1(x)
    np.testing.assert_allclose((i0 * k1 + i1 * k0).numpy(), 1 / x.numpy(), rtol=1e-13)


def test_ends():
    x = dt.tensor([math.inf, -math.inf, math.nan, 0.0, -1.0])
    nan, inf = math.nan, math.inf
    for name, want in {
        "bessel_j0": [nan, nan, nan, 1, 0.7651976823806763],
        "bessel_y0": [nan, nan, nan, -inf, nan], "bessel_y1": [nan, nan, nan, -inf, nan],
        "modified_bessel_k0": [0, nan, nan, inf, nan], "spherical_bessel_j0": [0, 0, nan, 1, None],
        "airy_ai": [nan, nan, nan, 0.3550280538878172, None],
    }.items():  # fmt: skip
        for got, wanted in zip(getattr(b, name)(x).tolist(), want, strict=True):
            if wanted is not None:
                assert got == pytest.approx(wanted, nan_ok=True)
