"""Distributions of counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..ops.api import arange, binomial, broadcast_tensors, exp, lgamma, log, poisson, where, xlogy
from . import constraints
from .constraints import Constraint
from .discrete import OverCategories, enumerated
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Gamma
from .parameters import ProbsOrLogits, broadcast_all, either, softplus

__all__ = ["Binomial", "Multinomial", "NegativeBinomial", "Poisson"]


class Poisson(ExponentialFamily):
    """How many events happen in a unit of time at ``rate``."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (log(self.rate),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return exp(x)


class Trials(ProbsOrLogits, Distribution):
    """``total_count``, and a probability ``probs`` or its log-odds ``logits``, broadcast."""

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        name, given = either(probs, logits)
        count, given = broadcast_all(total_count, given)
        self.total_count = count.to(given.dtype)
        setattr(self, name, given)
        super().__init__(given.shape, (), validate_args)


class Binomial(Trials):
    """How many of ``total_count`` trials of probability ``probs`` succeed."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
        "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        """Up to ``total_count``."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return value * self.logits - n * softplus(self.logits) + ways

    def _one_count(self, where_: str) -> int:
        most = int(self.total_count.max())
        if int(self.total_count.min()) != most:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{where_}`.")
        return most

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        each = self.log_prob(self.enumerate_support(False))
        return -(exp(each) * each).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most, like = self._one_count("enumerate_support"), self._param
        return enumerated(self, arange(1 + most, dtype=like.dtype, device=like.device), expand)


class NegativeBinomial(Trials):
    """How many trials of probability ``probs`` succeed before ``total_count`` have failed."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real,
    }  # fmt: skip
    support = constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * exp(self.logits)).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 + exp(self.logits))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Poisson counts whose rates are gamma numbers."""
        with no_grad():
            rates = Gamma(self.total_count, exp(-self.logits), validate_args=False)
            return poisson(rates.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        ways = lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        ways = where(n + value == 0.0, 0.0, ways)
        return ways - n * softplus(self.logits) - value * softplus(-self.logits)


class Multinomial(OverCategories):
    """How often each of k categories comes in ``total_count`` draws."""

    _kept = ("total_count",)

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        """Counts that sum to at most ``total_count``."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
            counts = self.probs.new_zeros(tuple(self._extended_shape(sample_shape)))
            return counts.scatter_add(-1, drawn, counts.new_ones(tuple(drawn.shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        logits = where((value == 0) & (logits == -math.inf), 0.0, logits)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        """By the entropies of the draws, less the mean log-number of their orders."""
        n = self.total_count
        counts = Binomial(n, self.probs, validate_args=False)
        possible = counts.enumerate_support(expand=False)[1:]
        orders = (exp(counts.log_prob(possible)) * lgamma(possible + 1)).sum(0).sum(-1)
        return n * self._categorical.entropy() - math.lgamma(n + 1) + orders
