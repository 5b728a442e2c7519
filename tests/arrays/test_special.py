"""Special functions, densities, activations and elements, against known values and identities."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import activations, densities, elements, special
from disttrain.autograd import gradcheck


def t(*x):
    return dt.tensor(x, dtype=dt.float64)


KNOWN = [  # Abramowitz and Stegun, tables 5.1, 26.5 and 27.7
    (special.exp1, (0.5,), 0.5597735947761607), (special.exp1, (3.0,), 0.01304838109419704),
    (special.expi, (1.0,), 1.8951178163559368), (special.expi, (50.0,), 1.0585636897131690e20),
    (special.expi, (-1.0,), -0.21938393439552026), (special.spence, (0.5,), 0.5822405264650125),
    (special.spence, (2.0,), -math.pi**2 / 12), (special.spence, (0.0,), math.pi**2 / 6),
    (special.betainc, (2.0, 3.0, 0.4), 0.5248), (special.betainc, (0.5, 0.5, 0.5), 0.5),
    (special.gamma, (-1.5,), 2.363271801207355), (special.factorial, (5.0,), 120.0),
    (special.binomial, (5.0, 2.0), 10.0), (special.expn, (2.0, 1.0), 0.14849550677592205),
    (special.kl_div, (1.0, 2.0), math.log(0.5) + 1), (special.boxcox, (2.0, 0.0), math.log(2)),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "args", "want"), KNOWN)
def test_known_values(fn, args, want):
    assert fn(*map(t, args)).item() == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("fn", [special.exp1, special.expi, special.spence, special.betainc])
def test_derivatives(fn):
    args = (t(2.0), t(3.0)) if fn is special.betainc else ()
    x = t(0.3, 0.7).requires_grad_()
    assert gradcheck(lambda x: fn(*args, x), (x,))


def test_densities_are_the_slopes_of_their_distributions():
    x = t(0.31, 0.47, 0.83)
    for name, shapes in (("norm", ()), ("logistic", ()), ("cauchy", ()), ("laplace", ()),
                         ("gumbel_r", ()), ("gumbel_l", ()), ("expon", ()), ("gamma", (2.0,)),
                         ("beta", (2.0, 3.0)), ("chi2", (3.0,)), ("uniform", ())):  # fmt: skip
        parts, h = [t(s) for s in shapes], 1e-5
        up, down = (densities.cumulative(name, x + s * h, *parts) for s in (1, -1))
        slope = ((up - down) / (2 * h)).numpy()
        got = densities.log_density(name, x, *parts).exp().numpy()
        np.testing.assert_allclose(got, slope, rtol=1e-6)


def test_numbers_have_probabilities_that_sum_to_one():
    k = dt.arange(60).double()
    for name, shapes in (("poisson", (3.0,)), ("geom", (0.3,)), ("binom", (9.0, 0.4)),
                         ("nbinom", (4.0, 0.6)), ("betabinom", (9.0, 2.0, 3.0)),
                         ("bernoulli", (0.3,))):  # fmt: skip
        total = densities.log_density(name, k, *[t(s) for s in shapes]).exp().sum()
        assert total.item() == pytest.approx(1)


def test_activations():
    x = t(-2.0, 0.5, 3.0)
    flags = dt.tensor([True, False, True])
    assert activations.softmax(x, where=flags).sum().item() == pytest.approx(1)
    assert activations.logsumexp(x).item() == pytest.approx(np.log(np.exp(x.numpy()).sum()))
    value, sign = activations.logsumexp(x, b=x, return_sign=True)
    assert (sign * value.exp()).item() == pytest.approx((x * x.exp()).sum().item())
    assert activations.one_hot(dt.tensor([1, 5]), 3).tolist() == [[False, True, False], [False] * 3]
    assert activations.standardize(x).mean().item() == pytest.approx(0, abs=1e-9)
    got = activations.log1mexp(t(0.1, 3.0)).exp() + t(-0.1, -3.0).exp()
    assert got.tolist() == pytest.approx([1, 1])
    q = dt.randn(2, 3, 4, 8)
    out = activations.attention(q, q, q, is_causal=True)
    np.testing.assert_allclose(out[:, 0].numpy(), q[:, 0].numpy(), rtol=1e-5)


def test_elements_at_the_edges():
    a, b = dt.tensor([7, -7, 5, 0]), dt.tensor([2, 2, 0, 3])
    assert elements.floor_divide(a, b).tolist() == [3, -4, -2, 0]
    assert elements.remainder(a, b).tolist() == [1, 1, 0, 0]
    one = dt.tensor([1], dtype=dt.int8)
    assert elements.left_shift(one, one * 9).tolist() == [0]
    assert elements.right_shift(-one, one * 9).tolist() == [-1]
    assert elements.power(a, dt.tensor([2, 3, 0, 1])).tolist() == [49, -343, 1, 0]
    c = dt.tensor([1 + 2j, 1 - 1j])
    assert elements.lt(c, dt.tensor([1 + 3j, 0j])).tolist() == [True, False]
    assert elements.cbrt(t(-8.0, 0.0, 27.0)).tolist() == pytest.approx([-2, 0, 3])
    assert elements.sign(t(-2.0, 0.0)).tolist() == [-1, 0]
    flags = dt.tensor([True, False])
    assert elements.add(flags, flags).tolist() == [True, False]
