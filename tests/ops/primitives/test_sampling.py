"""Draws from distributions of arguments, and how samples move with parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError
from disttrain.ops.functions import sampling as draws
from disttrain.ops.primitives import sampling

N = 20_000


def test_moments_and_repetition():
    for draw, mean, variance in (
        (lambda g: draws.standard_gamma(dt.full((N,), 2.5), g), 2.5, 2.5),
        (lambda g: draws.standard_dirichlet(dt.ones(N, 2), g)[:, 0], 0.5, 1 / 12),
        (lambda g: dt.binomial(dt.full((N,), 8.0), dt.full((N,), 0.25), g), 2.0, 1.5),
        (lambda g: draws.standard_von_mises(dt.full((N,), 100.0), g), 0.0, 0.01),
    ):
        found = [draw(dt.Generator().manual_seed(3)).numpy() for _ in range(2)]
        assert (found[0] == found[1]).all()
        assert abs(found[0].mean() - mean) < 5 * math.sqrt(variance / N)
        assert abs(found[0].var() - variance) < 0.06 * variance


@pytest.mark.parametrize("a", [0.05, 0.7, 2.0, 30.0, 100.0])
def test_gamma_samples_move_along_their_quantiles(a):
    """By differences of the distribution function, between its ends."""
    x = np.random.default_rng(0).gamma(a, size=50)
    step = 1e-4 * a
    F = lambda at: dt.special.gammainc(dt.tensor(at), dt.tensor(x)).numpy()
    full = lambda v: np.full_like(x, v)
    density = np.exp((a - 1) * np.log(x) - x - math.lgamma(a))
    want = -(F(full(a + step)) - F(full(a - step))) / (2 * step) / density
    found = sampling.gamma_moves(full(a), x)
    keeps = (F(full(a)) > 1e-3) & (F(full(a)) < 1 - 1e-3)
    np.testing.assert_allclose(found[keeps], want[keeps], rtol=2e-5)


def test_beta_samples_of_known_functions():
    """Of Beta(a, 1) the quantile of u is u ** (1 / a), of Beta(1, b) 1 - (1 - u) ** (1 / b)."""
    u, a = np.linspace(0.05, 0.95, 7), 0.6
    x = u ** (1 / a)
    found = sampling.dirichlet_moves(x, np.full_like(x, a), np.full_like(x, a + 1)) * (1 - x)
    np.testing.assert_allclose(found, -x * np.log(u) / a**2, rtol=1e-9)
    y = (1 - u) ** (1 / a)
    found = sampling.dirichlet_moves(y, np.full_like(y, a), np.full_like(y, a + 1)) * (1 - y)
    np.testing.assert_allclose(found, -y * np.log(1 - u) / a**2, rtol=1e-9)


def test_gradients_and_what_has_none():
    a = dt.tensor([0.5, 3.0], dtype=dt.float64, requires_grad=True)
    x = draws.standard_gamma(a)
    (found,) = dt.autograd.grad(x.sum(), a, create_graph=True)
    want = sampling.gamma_moves(a.detach().numpy(), x.detach().numpy())
    np.testing.assert_allclose(found.detach().numpy(), want)
    with pytest.raises(AutogradError, match="standard_gamma_grad"):
        dt.autograd.grad(found.sum(), a)
    p = draws.standard_dirichlet(dt.ones(4, 3, dtype=dt.float64, requires_grad=True))
    assert np.allclose(p.sum(-1).detach().numpy(), 1)
    q = dt.full((2,), 0.5, requires_grad=True)
    assert not dt.binomial(dt.full((2,), 3.0), q).requires_grad


def test_draws_of_each_example():
    x = dt.full((3, 4), 2.0)
    found = dt.func.vmap(draws.standard_dirichlet, randomness="different")(x)
    assert found.shape == (3, 4) and np.allclose(found.sum(-1).numpy(), 1, atol=1e-6)
    found = dt.func.vmap(draws.standard_gamma, randomness="different")(x)
    assert found.shape == (3, 4) and len(set(found.reshape(-1).tolist())) == 12


def test_a_compiled_program_draws_anew():
    @dt.compile
    def program(x):
        return draws.standard_gamma(x) * 2

    x = dt.full((5,), 2.0)
    program(x)
    dt.manual_seed(3)
    first = program(x).tolist()
    assert first != program(x).tolist()
    dt.manual_seed(3)
    assert first == (draws.standard_gamma(x) * 2).tolist()
