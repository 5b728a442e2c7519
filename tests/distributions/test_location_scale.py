"""Laplace, Cauchy, Gumbel: densities that integrate to the cdf, samples that follow it."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Cauchy, Gumbel, Laplace

LOC, SCALE = 0.5, 1.5
KINDS = [Laplace, Cauchy, Gumbel]


def made(kind, **kw):
    return kind(dt.tensor(LOC, dtype=dt.float64), dt.tensor(SCALE, dtype=dt.float64), **kw)


@pytest.mark.parametrize("kind", KINDS)
def test_density_is_the_derivative_of_the_cdf_and_icdf_its_inverse(kind):
    d = made(kind)
    # none is loc itself: there Laplace's cdf has a corner in its formula, as PyTorch's
    x = dt.linspace(-3.0, 4.0, 14, dtype=dt.float64).requires_grad_()
    (slope,) = dt.autograd.grad(d.cdf(x).sum(), x)
    assert np.allclose(slope.numpy(), d.log_prob(x).exp().detach().numpy(), rtol=1e-10)
    assert np.allclose(d.icdf(d.cdf(x)).detach().numpy(), x.detach().numpy(), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_is_the_mean_of_minus_log_prob(kind):
    d = made(kind)
    p = (dt.arange(200_000, dtype=dt.float64) + 0.5) / 200_000
    mean = -d.log_prob(d.icdf(p)).mean().item()
    assert mean == pytest.approx(d.entropy().item(), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_the_cdf(kind):
    dt.manual_seed(3)
    n = 4000
    drawn = made(kind).sample((n,))
    p = np.sort(made(kind).cdf(drawn).numpy())
    gap = np.abs(p - (np.arange(n) + 0.5) / n).max()
    assert gap < 1.63 / math.sqrt(n)  # Kolmogorov and Smirnov's bound at 1 %


@pytest.mark.parametrize("kind", KINDS)
def test_rsample_gives_gradients_and_shapes(kind):
    loc = dt.zeros(2, 1, requires_grad=True)
    scale = dt.ones(3, requires_grad=True)
    drawn = kind(loc, scale).rsample((4,))
    assert drawn.shape == (4, 2, 3) and drawn.requires_grad
    drawn.sum().backward()
    assert loc.grad.tolist() == [[12.0], [12.0]]
    assert np.allclose(scale.grad.sum().item(), drawn.detach().sum().item(), rtol=1e-4)
    assert kind(loc, scale).expand((5, 2, 3)).batch_shape == (5, 2, 3)


def test_moments():
    assert made(Laplace).variance.item() == pytest.approx(4.5)
    assert math.isnan(made(Cauchy).mean.item()) and math.isinf(made(Cauchy).variance.item())
    assert made(Gumbel).mean.item() == pytest.approx(LOC + SCALE * 0.5772156649)
    assert made(Gumbel).stddev.item() == pytest.approx(math.pi * SCALE / math.sqrt(6))
    assert made(Laplace).mode.item() == LOC


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"parameter scale .* GreaterThan\(lower_bound=0.0\)"):
        Laplace(0.0, -1.0)
    with pytest.raises(ValueError, match="value argument"):
        Laplace(0.0, 1.0).log_prob(dt.tensor(float("nan")))
    assert Laplace(0.0, -1.0, validate_args=False).batch_shape == ()
