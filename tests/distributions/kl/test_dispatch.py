"""kl_divergence: against integrals, and which formula is taken."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import (
    Bernoulli,
    Categorical,
    Cauchy,
    Exponential,
    Gumbel,
    Independent,
    Laplace,
    Normal,
    Uniform,
    kl_divergence,
    register_kl,
)


def t(*values):
    return dt.tensor(values if len(values) > 1 else values[0], dtype=dt.float64)


PAIRS = [
    (Normal(t(0.3), 1.2), Normal(t(-0.5), 2.0)),
    (Laplace(t(0.3), 1.2), Laplace(t(-0.5), 2.0)),
    (Cauchy(t(0.3), 1.2), Cauchy(t(-0.5), 2.0)),
    (Gumbel(t(0.3), 1.2), Gumbel(t(-0.5), 2.0)),
    (Exponential(t(0.7)), Exponential(t(1.9))),
    (Uniform(t(0.2), 0.9), Uniform(t(0.0), 2.0)),
    (Exponential(t(0.7)), Normal(t(-0.5), 2.0)),
    (Gumbel(t(0.3), 1.2), Normal(t(-0.5), 2.0)),
    (Laplace(t(0.3), 1.2), Normal(t(-0.5), 2.0)),
    (Uniform(t(0.2), 0.9), Normal(t(-0.5), 2.0)),
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_continuous_against_the_integral(p, q):
    at = (dt.arange(200_000, dtype=dt.float64) + 0.5) / 200_000
    x = p.icdf(at)
    mean = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert kl_divergence(p, q).item() == pytest.approx(mean, abs=1e-3)


def test_discrete_against_the_sum():
    p, q = t(0.2, 0.3, 0.5), t(0.5, 0.25, 0.25)
    want = (p.numpy() * np.log(p.numpy() / q.numpy())).sum()
    assert kl_divergence(Categorical(p), Categorical(q)).item() == pytest.approx(want)
    want = 0.2 * math.log(0.2 / 0.5) + 0.8 * math.log(0.8 / 0.5)
    assert kl_divergence(Bernoulli(t(0.2)), Bernoulli(t(0.5))).item() == pytest.approx(want)


def test_what_q_excludes_is_infinite():
    zero, half, one = (Bernoulli(t(v)) for v in (0.0, 0.5, 1.0))
    assert kl_divergence(half, zero).item() == kl_divergence(half, one).item() == math.inf
    assert kl_divergence(zero, half).item() == pytest.approx(math.log(2))
    never = Categorical(t(0.0, 1.0))
    assert kl_divergence(Categorical(t(0.5, 0.5)), never).item() == math.inf
    assert kl_divergence(Uniform(0.0, 2.0), Uniform(0.0, 1.0)).item() == math.inf
    assert kl_divergence(Normal(dt.zeros(2), 1.0), Exponential(1.0)).tolist() == [math.inf] * 2


def test_independent_sums():
    p, q = Normal(dt.zeros(2, 3), 1.0), Normal(dt.ones(2, 3), 2.0)
    got = kl_divergence(Independent(p, 1), Independent(q, 1))
    assert np.allclose(got.numpy(), kl_divergence(p, q).sum(-1).numpy())
    with pytest.raises(NotImplementedError, match="given 1 and 2"):
        kl_divergence(Independent(p, 1), Independent(q, 2))


def test_the_nearest_classes_are_taken():
    class Left(Normal):
        pass

    class Right(Normal):
        pass

    register_kl(Left, Normal)(lambda p, q: t(1.0))
    assert kl_divergence(Left(0.0, 1.0), Right(0.0, 1.0)).item() == 1.0
    assert kl_divergence(Right(0.0, 1.0), Left(0.0, 1.0)).item() == 0.0
    register_kl(Normal, Right)(lambda p, q: t(2.0))
    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        assert kl_divergence(Left(0.0, 1.0), Right(0.0, 1.0)).item() == 1.0


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="p type Cauchy and q type Normal"):
        kl_divergence(Cauchy(0.0, 1.0), Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="type_q"):
        register_kl(Normal, int)
