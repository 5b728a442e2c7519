"""The divergence of Kullback and Leibler between two distributions, by a table of formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops.api import exp, full_like, lgamma, log, logaddexp, where
from ..trace import warn
from .discrete import Bernoulli, Categorical
from .distribution import Distribution
from .independent import Independent
from .location_scale import EULER, Cauchy, Gumbel, Laplace
from .normal import Normal
from .positive import Exponential, Uniform

__all__ = ["kl_divergence", "register_kl"]

Formula = Callable[[Any, Any], Tensor]
_TABLE: dict[tuple[type, type], Formula] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorator: ``formula(p, q)`` is the divergence for these two classes and their subclasses.
    Of several that fit, the one for the nearest classes is taken. TypeError: not a distribution."""
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(given, type) and issubclass(given, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def keep(formula: Formula) -> Formula:
        _TABLE[type_p, type_q] = formula
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under ``p`` of log p - log q, in nats, [*batch_shape]. NotImplementedError: no
    formula is registered for the two classes."""
    return _formula(type(p), type(q))(p, q)


def _formula(of_p: type, of_q: type) -> Formula:
    fits = [
        (of_p.__mro__.index(a), of_q.__mro__.index(b), (a, b))
        for a, b in _TABLE
        if issubclass(of_p, a) and issubclass(of_q, b)
    ]
    if not fits:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {of_p.__name__} and q type {of_q.__name__}; "
            "register_kl gives one"
        )
    by_p, by_q = min(fits, key=lambda f: f[:2]), min(fits, key=lambda f: (f[1], f[0]))
    if _TABLE[by_p[2]] is not _TABLE[by_q[2]]:
        one, other = (" , ".join(t.__name__ for t in f[2]) for f in (by_p, by_q))
        warn(
            f"Ambiguous kl_divergence({of_p.__name__}, {of_q.__name__}). Please "
            f"register_kl for these two; ({one}) is taken before ({other})", RuntimeWarning,
        )  # fmt: skip
    return _TABLE[by_p[2]]


def _weighed(weight: Tensor, difference: Tensor, other: Tensor) -> Tensor:
    """``weight`` * ``difference``; infinite where only ``other`` is 0, and 0 where weight is."""
    term = where(other == 0, full_like(other, math.inf), weight * difference)
    return where(weight == 0, full_like(weight, 0.0), term)


def _softplus(x: Tensor) -> Tensor:
    return logaddexp(x, x.detach() * 0)


@register_kl(Bernoulli, Bernoulli)
def _of_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    hit = _softplus(-q.logits) - _softplus(-p.logits)
    miss = _softplus(q.logits) - _softplus(p.logits)
    return _weighed(p.probs, hit, q.probs) + _weighed(1 - p.probs, miss, 1 - q.probs)


@register_kl(Categorical, Categorical)
def _of_categorical(p: Categorical, q: Categorical) -> Tensor:
    return _weighed(p.probs, p.logits - q.logits, q.probs).sum(-1)


@register_kl(Normal, Normal)
def _of_normal(p: Normal, q: Normal) -> Tensor:
    ratio, apart = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + apart - 1 - log(ratio))


@register_kl(Laplace, Laplace)
def _of_laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -log(ratio) + apart / q.scale + ratio * exp(-apart / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _of_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return log((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) - log(4 * p.scale * q.scale)


@register_kl(Gumbel, Gumbel)
def _of_gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -log(ratio) + apart + ratio * EULER + exp(lgamma(1 + ratio) - apart) - (1 + EULER)


@register_kl(Exponential, Exponential)
def _of_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(Uniform, Uniform)
def _of_uniform(p: Uniform, q: Uniform) -> Tensor:
    outside = (q.low > p.low) | (q.high < p.high)
    return log((q.high - q.low) / (p.high - p.low)).masked_fill(outside, math.inf)


@register_kl(Exponential, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale * q.scale)
    return spread + log(q.scale) + 0.5 * math.log(2 * math.pi) - p.entropy()


@register_kl(Exponential, Uniform)
@register_kl(Gumbel, Exponential)
@register_kl(Gumbel, Uniform)
@register_kl(Laplace, Exponential)
@register_kl(Laplace, Uniform)
@register_kl(Normal, Exponential)
@register_kl(Normal, Uniform)
def _outside(p: Distribution, q: Distribution) -> Tensor:
    return full_like(p.entropy() + q.entropy(), math.inf)


@register_kl(Independent, Independent)
def _of_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL(p || q) of Independent needs as many reinterpreted dimensions of p as of q; given "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    each = kl_divergence(p.base_dist, q.base_dist)
    for _ in range(p.reinterpreted_batch_ndims):
        each = each.sum(-1)
    return each
