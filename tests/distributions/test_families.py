"""What all distributions have in common: samples by their own functions and densities, shapes, what
expands, validation that can be switched off."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from support.cases.distribution_cases import CASES, IDS, made

D = dt.distributions
N = 4000
KS = 2.2 / math.sqrt(N)  # passed with a probability of 0.0001 at most


def each(test):
    return pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)(test)


@each
def test_samples_follow_the_distribution_function(name, params):
    """By the distance of Kolmogorov and Smirnov; discrete ones by their frequencies, others by
    their mean."""
    dt.manual_seed(1)
    d, _ = made(dt, name, params)
    drawn = d.sample((N,))
    assert bool(d.support.check(drawn).all())
    try:
        at = np.sort(d.cdf(drawn).numpy().reshape(N, -1), axis=0)
        grid = np.arange(1, N + 1)[:, None] / N
        assert np.abs(at - grid).max() < KS
    except NotImplementedError:
        _frequencies_or_means(d, drawn)


def _frequencies_or_means(d, drawn):
    if d.has_enumerate_support and not d.event_shape:
        for value in d.enumerate_support():
            share = (drawn == value).double().mean(0)
            near = d.log_prob(value).exp()
            assert bool(((share - near).abs() < 4.5 * (near * (1 - near) / N).sqrt() + 1e-9).all())
        return
    try:
        mean, spread = d.mean, d.stddev
    except NotImplementedError:
        return
    if bool(spread.isfinite().all()) and not isinstance(d, (D.VonMises, D.FisherSnedecor)):
        away = (drawn.mean(0) - mean).abs()
        assert bool((away <= 5 * spread / math.sqrt(N) + 1e-9).all())


@each
def test_shapes_and_what_expands(name, params):
    d, _ = made(dt, name, params)
    batch, event = tuple(d.batch_shape), tuple(d.event_shape)
    assert tuple(d.sample().shape) == batch + event
    assert tuple(d.log_prob(d.sample((3,))).shape) == (3, *batch)
    wide = d.expand((2, *batch))
    assert type(wide) is type(d) and tuple(wide.batch_shape) == (2, *batch)
    value = wide.sample()
    assert bool(dt.allclose(wide.log_prob(value), d.log_prob(value)))

    class Own(type(d)):
        pass

    assert type(made(dt, name, params)[0].expand(batch)) is type(d)
    own = Own(**{k: dt.tensor(v, dtype=dt.float64) if isinstance(v, list) else v
                 for k, v in params.items()})  # fmt: skip
    assert type(own.expand((2, *batch))) is Own


@each
def test_samples_have_gradients_where_they_say_so(name, params):
    d, leaves = made(dt, name, params, grad=True)
    assert not d.sample().requires_grad
    if not d.has_rsample:
        with pytest.raises(NotImplementedError, match="rsample"):
            d.rsample()
        return
    dt.manual_seed(0)
    drawn = d.rsample((5,))
    found = dt.autograd.grad(drawn.square().sum(), leaves, allow_unused=True)
    assert any(f is not None and bool(f.isfinite().all()) for f in found)


@each
def test_values_outside_are_refused(name, params):
    d, _ = made(dt, name, params)
    bad = dt.full_like(d.sample().double(), math.nan)
    with pytest.raises(ValueError, match=r"Expected value argument .* to be within the support"):
        d.log_prob(bad)
    d._validate_args = False
    d.expand(d.batch_shape)


def test_a_subclass_with_its_own_init_expands_itself():
    class Shifted(D.Normal):
        def __init__(self, by):
            super().__init__(by + 1.0, 1.0)

    with pytest.raises(NotImplementedError, match="must also define a custom"):
        Shifted(dt.zeros(2)).expand((3, 2))


def test_what_defines_no_constraints_warns():
    class Plain(D.Distribution):
        pass

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        Plain()
    with pytest.raises(ValueError, match="True or False"):
        D.Distribution.set_default_validate_args(3)
