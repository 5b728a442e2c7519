"""Formulas of Kullback and Leibler's divergence for pairs of distributions (Gil, Alajaji and
Linder, Rényi divergence measures for commonly used univariate continuous distributions, 2013, and
integrals of the densities)."""

from __future__ import annotations

import math
from typing import Any

from ...core.tensor import Tensor
from ...linalg import solve_triangular
from ...ops.api import (
    diag_embed,
    digamma,
    erf,
    exp,
    full_like,
    lgamma,
    log,
    log1p,
    where,
    xlogy,
)
from ..counts import Binomial, Poisson
from ..discrete import Bernoulli, Categorical, ContinuousBernoulli, Geometric, OneHotCategorical
from ..distribution import Distribution
from ..exp_family import ExponentialFamily, statistics
from ..gamma import Beta, Dirichlet, Gamma
from ..independent import Independent
from ..location_scale import Cauchy, Gumbel, Laplace
from ..multivariate_normal import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    log_diagonal,
    low_rank_log_det,
    low_rank_mahalanobis,
    mahalanobis,
)
from ..normal import HalfNormal, Normal
from ..parameters import all_true, euler_constant, softplus, sum_rightmost
from ..positive import Exponential, Pareto, Uniform
from ..transformed import TransformedDistribution
from .dispatch import kl_divergence, register_kl


def _weighed(weight: Tensor, difference: Tensor, other: Tensor) -> Tensor:
    """``weight`` * ``difference``; infinite where only ``other`` is 0, and 0 where weight is."""
    term = where(other == 0, full_like(other, math.inf), weight * difference)
    return where(weight == 0, full_like(weight, 0.0), term)


# --- of one kind -------------------------------------------------------------------------------
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    hit = softplus(-q.logits) - softplus(-p.logits)
    miss = softplus(q.logits) - softplus(p.logits)
    return _weighed(p.probs, hit, q.probs) + _weighed(1 - p.probs, miss, 1 - q.probs)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return kl_divergence(p._dirichlet, q._dirichlet)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if not all_true(p.total_count >= q.total_count):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    hit, miss = p.logits - q.logits, softplus(q.logits) - softplus(p.logits)
    found = p.total_count * (p.probs * hit + miss)
    return where(p.total_count > q.total_count, full_like(found, math.inf), found)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return _weighed(p.probs, p.logits - q.logits, q.probs).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    slope = p.mean * (p.logits - q.logits)
    rest = p._log_norm() + log1p(-p.probs) - q._log_norm() - log1p(-q.probs)
    return slope + rest


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    scales = lgamma(a.sum(-1)) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return scales + ((a - b) * (digamma(a) - digamma(a.sum(-1, keepdim=True)))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log-normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences"
        )
    params, log_norm, means = statistics(p)
    found = q._log_normalizer(*q._natural_params) - log_norm
    for ours, theirs, mean in zip(params, q._natural_params, means, strict=True):
        found = found - sum_rightmost((theirs - ours) * mean, len(q.event_shape))
    return found


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    scales = b * log(p.rate / q.rate) + lgamma(b) - lgamma(a)
    return scales + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    bent = exp(lgamma(1 + ratio) - apart)
    return apart - log(ratio) + ratio * euler_constant + bent - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -log(ratio) + apart / q.scale + ratio * exp(-apart / p.scale) - 1


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio, apart = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + apart - 1 - log(ratio))


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    scales, shapes = p.scale / q.scale, q.alpha / p.alpha
    found = q.alpha * log(scales) - log(shapes) + shapes - 1
    return where(p.scale < q.scale, full_like(found, math.inf), found)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return xlogy(p.rate, p.rate) - xlogy(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL(p || q) of transformed distributions needs equal transforms")
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), more)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = log((q.high - q.low) / (p.high - p.low))
    outside = (q.low > p.low) | (q.high < p.high)
    return where(outside, full_like(found, math.inf), found)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return log((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) - log(4 * p.scale * q.scale)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL(p || q) of Independent needs as many reinterpreted dimensions of p as of q; given "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# --- of normal vectors -------------------------------------------------------------------------
def _same_event(p: Distribution, q: Distribution) -> int:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {type(p).__name__} and {type(q).__name__} with different "
            f"event shapes cannot be computed: {p.event_shape}, {q.event_shape}"
        )
    return p.event_shape[0]


def _squares(factor: Tensor, of: Tensor) -> Tensor:
    """The trace of (factor⁻¹ of)(factor⁻¹ of)ᵀ."""
    batch = max(factor.dim(), of.dim()) - 2
    both = (m.reshape(*(1,) * (batch + 2 - m.dim()), *m.shape) for m in (factor, of))
    found = solve_triangular(*both, upper=False)
    return (found * found).sum(-1).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    n, ours, theirs = _same_event(p, q), p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    spread = _squares(theirs, ours) + mahalanobis(theirs, q.loc - p.loc)
    return log_diagonal(theirs) - log_diagonal(ours) + 0.5 * (spread - n)


def _to_low_rank(p: Any, q: LowRankMultivariateNormal, parts: list[Tensor]) -> Tensor:
    """Half the mean square distance from q's mean, measured by q, less n; ``parts``: matrices whose
    products with their transposes sum to p's covariance."""
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    apart = low_rank_mahalanobis(factor, diagonal, q.loc - p.loc, q._capacitance_tril)
    inner = factor.mT / diagonal.unsqueeze(-2)
    for part in parts:
        apart = apart + (part * part / diagonal.unsqueeze(-1)).sum(-1).sum(-1)
        apart = apart - _squares(q._capacitance_tril, inner @ part)
    return 0.5 * (apart - _same_event(p, q))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _same_event(p, q)
    parts = [p._unbroadcasted_cov_factor, diag_embed(p._unbroadcasted_cov_diag.sqrt())]
    return _to_low_rank(p, q, parts) + 0.5 * (q._log_det() - p._log_det())


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_low_rank(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    _same_event(p, q)
    ours = p._unbroadcasted_scale_tril
    theirs = 0.5 * low_rank_log_det(q._unbroadcasted_cov_diag, q._capacitance_tril)
    return _to_low_rank(p, q, [ours]) + theirs - log_diagonal(ours)


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_multivariate(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    n, theirs = _same_event(p, q), q._unbroadcasted_scale_tril
    spread = mahalanobis(theirs, q.loc - p.loc) + _squares(theirs, p._unbroadcasted_cov_factor)
    spread = spread + _squares(theirs, diag_embed(p._unbroadcasted_cov_diag.sqrt()))
    return log_diagonal(theirs) + 0.5 * (spread - n - p._log_det())


# --- of two kinds ------------------------------------------------------------------------------
@register_kl(Exponential, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Gamma, Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale * q.scale)
    return spread + log(q.scale) + 0.5 * math.log(2 * math.pi) - p.entropy()


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Tensor:
    found = _to_normal(p, q)
    return where(p.alpha <= 2, full_like(found, math.inf), found)


@register_kl(Beta, ContinuousBernoulli)
def _to_continuous_bernoulli(p: Beta, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - log1p(-q.probs) - q._log_norm()


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return -p.entropy() - log(q.rate) + q.rate * p.mean


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    found = _to_exponential(p, q)
    return where(p.alpha <= 1, full_like(found, math.inf), found)


def _gamma_terms(q: Gamma, mean: Tensor, mean_log: Tensor) -> Tensor:
    """Minus the mean of log q."""
    a = q.concentration
    return lgamma(a) - a * log(q.rate) - (a - 1) * mean_log + q.rate * mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    mean_log = digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0)
    return -p.entropy() + _gamma_terms(q, p.mean, mean_log)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return -p.entropy() + _gamma_terms(q, p.mean, -log(p.rate) - euler_constant)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    found = -p.entropy() + _gamma_terms(q, p.mean, log(p.scale) + 1 / p.alpha)
    return where(p.alpha <= 1, full_like(found, math.inf), found)


def _to_gumbel(p: Distribution, q: Gumbel, bent: Tensor) -> Tensor:
    """``bent``: the mean of exp(-value / scale) of q's scale."""
    mean = (p.mean - q.loc) / q.scale
    return -p.entropy() + log(q.scale) + mean + exp(q.loc / q.scale) * bent


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    return _to_gumbel(p, q, p.rate / (p.rate + 1 / q.scale))


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    return _to_gumbel(p, q, (1 + 1 / (p.rate * q.scale)) ** -p.concentration)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    apart, ratio = (p.loc - q.loc) / q.scale, p.scale / q.scale
    return -p.entropy() + log(q.scale) + apart + exp(0.5 * ratio * ratio - apart)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    width = (p.high - p.low) / q.scale
    return _to_gumbel(p, q, (exp(-p.low / q.scale) - exp(-p.high / q.scale)) / width)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    """By the mean of |value - loc|, a folded normal number."""
    z = (p.loc - q.loc) / p.scale
    folded = math.sqrt(2 / math.pi) * exp(-0.5 * z * z) + z * erf(math.sqrt(0.5) * z)
    return -p.entropy() + log(2 * q.scale) + p.scale / q.scale * folded


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * log(q.rate) - q.rate)


def _to_uniform(p: Distribution, q: Uniform, low: Any, high: Any) -> Tensor:
    """For p between ``low`` and ``high``."""
    found = -p.entropy() + log(q.high - q.low)
    return where((q.low > low) | (q.high < high), full_like(found, math.inf), found)


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_uniform(p: Distribution, q: Uniform) -> Tensor:
    return _to_uniform(p, q, 0, 1)


def _from_uniform(p: Uniform, found: Tensor, low: Any, high: Any) -> Tensor:
    """``found``, and infinite where p leaves what is between ``low`` and ``high``."""
    return where((p.low < low) | (p.high > high), full_like(found, math.inf), found)


def _mean_log(p: Uniform) -> Tensor:
    """Of the logarithm; of values that may be 0 at an end."""
    return (xlogy(p.high, p.high) - xlogy(p.low, p.low)) / (p.high - p.low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    low, high = 1 - p.low, 1 - p.high
    other = (xlogy(low, low) - xlogy(high, high)) / (p.high - p.low) - 1
    scale = lgamma(a) + lgamma(b) - lgamma(a + b)
    found = -p.entropy() + scale - (a - 1) * _mean_log(p) - (b - 1) * other
    return _from_uniform(p, found, 0, 1)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    found = -p.entropy() - p.mean * q.logits - log1p(-q.probs) - q._log_norm()
    return _from_uniform(p, found, 0, 1)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return _from_uniform(p, _to_exponential(p, q), 0, math.inf)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    found = -p.entropy() + _gamma_terms(q, p.mean, _mean_log(p))
    return _from_uniform(p, found, 0, math.inf)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    found = (q.alpha + 1) * _mean_log(p) - p.entropy() - log(q.alpha) - q.alpha * log(q.scale)
    return _from_uniform(p, found, q.scale, math.inf)


@register_kl(Exponential, Pareto)
@register_kl(Exponential, Uniform)
@register_kl(Exponential, Beta)
@register_kl(Exponential, ContinuousBernoulli)
@register_kl(Gamma, Beta)
@register_kl(Gamma, ContinuousBernoulli)
@register_kl(Gamma, Pareto)
@register_kl(Gamma, Uniform)
@register_kl(Gumbel, Beta)
@register_kl(Gumbel, ContinuousBernoulli)
@register_kl(Gumbel, Exponential)
@register_kl(Gumbel, Gamma)
@register_kl(Gumbel, Pareto)
@register_kl(Gumbel, Uniform)
@register_kl(Laplace, Beta)
@register_kl(Laplace, ContinuousBernoulli)
@register_kl(Laplace, Exponential)
@register_kl(Laplace, Gamma)
@register_kl(Laplace, Pareto)
@register_kl(Laplace, Uniform)
@register_kl(Normal, Beta)
@register_kl(Normal, ContinuousBernoulli)
@register_kl(Normal, Exponential)
@register_kl(Normal, Gamma)
@register_kl(Normal, Pareto)
@register_kl(Normal, Uniform)
@register_kl(Beta, Pareto)
@register_kl(ContinuousBernoulli, Pareto)
@register_kl(Pareto, Beta)
@register_kl(Pareto, ContinuousBernoulli)
@register_kl(Pareto, Uniform)
@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _outside(p: Any, q: Any) -> Tensor:
    """Infinite: p has values that q excludes."""
    return full_like(_parameter(p) + _parameter(q), math.inf)


def _parameter(of: Distribution) -> Tensor:
    """Any of the parameters, for its shape."""
    return getattr(of, next(iter(of.arg_constraints)))
