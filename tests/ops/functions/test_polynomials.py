"""Orthogonal polynomials: closed forms, orthogonality, degrees that differ, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.functions.polynomials import POLYNOMIALS

S = dt.special
X = np.linspace(-0.95, 0.95, 7)


def test_closed_forms():
    angle, n = np.arccos(X), 9
    half = (
        np.cos((n + 0.5) * angle) / np.cos(angle / 2),
        np.sin((n + 0.5) * angle) / np.sin(angle / 2),
    )
    forms = {"t": np.cos(n * angle), "u": np.sin((n + 1) * angle) / np.sin(angle), "v": half[0],
             "w": half[1]}  # fmt: skip
    for kind, want in forms.items():
        found = getattr(S, f"chebyshev_polynomial_{kind}")(dt.tensor(X), n)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-11, atol=1e-12)
        found = getattr(S, f"shifted_chebyshev_polynomial_{kind}")(dt.tensor((X + 1) / 2), n)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-11, atol=1e-12)
    assert S.hermite_polynomial_h(dt.tensor(0.5), 3).item() == -5
    assert S.hermite_polynomial_he(dt.tensor(2.0), 3).item() == 2
    assert S.laguerre_polynomial_l(dt.tensor(2.0), 2).item() == -1
    assert S.legendre_polynomial_p(dt.tensor(2.0), 3).item() == 17


def test_legendre_polynomials_are_orthogonal():
    x, weights = np.polynomial.legendre.leggauss(20)
    p = S.legendre_polynomial_p(dt.tensor(x), dt.arange(6, dtype=dt.float64)[:, None]).numpy()
    np.testing.assert_allclose(p @ np.diag(weights) @ p.T, np.diag(2 / (2 * np.arange(6) + 1)),
                               atol=1e-13)  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_degrees_types_and_what_is_refused(name):
    fn = getattr(S, name)
    many = fn(dt.tensor(0.3), dt.tensor([-1, 0, 1, 2, 5]))
    assert many.dtype is dt.float32 and many[:2].tolist() == [0, 1]
    one = [fn(dt.tensor(0.3), n).item() for n in (1, 2, 5)]
    assert many[2:].tolist() == pytest.approx(one)
    assert fn(0.3, dt.tensor([2])).item() == pytest.approx(many[3].item(), abs=1e-6)
    assert fn(dt.tensor([1, 2]), dt.tensor([1, 2])).dtype is dt.float32
    assert not fn(dt.ones(2, requires_grad=True), 2).requires_grad
    out = dt.empty(0)
    assert fn(dt.ones(2), 2, out=out) is out and out.shape == (2,)
    assert fn(dt.ones(0), 3).shape == (0,) and math.isnan(fn(dt.tensor(math.nan), 3).item())
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        fn(0.5, 2)
    for kind in (dt.float16, dt.bfloat16, dt.complex64):
        with pytest.raises(TypeError, match=name):
            fn(dt.ones(2, dtype=kind), dt.ones(2, dtype=kind))
