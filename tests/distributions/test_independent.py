"""Independent: sums over what is one value, shapes, and what it refuses."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Bernoulli, Categorical, Independent, Laplace, Normal

LOC = dt.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], dtype=dt.float64)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_sums_and_shapes(count):
    base = Normal(LOC, 1.5)
    d = Independent(base, count)
    assert d.batch_shape == (2, 3)[: 2 - count] and d.event_shape == (2, 3)[2 - count :]
    axes = tuple(range(-count, 0))
    value = LOC * 0.5
    assert np.allclose(d.log_prob(value).numpy(), base.log_prob(value).numpy().sum(axis=axes))
    assert np.allclose(d.entropy().numpy(), base.entropy().numpy().sum(axis=axes))
    assert d.sample((4,)).shape == (4, 2, 3) and d.has_rsample
    assert d.mean is base.mean and d.variance.tolist() == base.variance.tolist()
    wide = d.expand((7, *d.batch_shape))
    assert wide.event_shape == d.event_shape and wide.sample().shape == (7, 2, 3)


def test_support_covers_the_event():
    assert repr(Independent(Laplace(LOC, 1.0), 1).support) == "IndependentConstraint(Real(), 1)"
    assert repr(Independent(Laplace(LOC, 1.0), 0).support) == "Real()"


def test_enumeration_only_without_reinterpreted_dimensions():
    base = Categorical(dt.ones(2, 3))
    assert Independent(base, 0).enumerate_support().shape == (3, 2)
    with pytest.raises(NotImplementedError, match="cartesian product"):
        Independent(base, 1).enumerate_support()
    assert not Independent(Bernoulli(dt.ones(2)), 1).has_rsample


def test_more_dimensions_than_there_are():
    with pytest.raises(ValueError, match="actual 3 vs 2"):
        Independent(Normal(LOC, 1.0), 3)
