"""Continuous distributions over an interval or over numbers above a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..ops.api import (
    digamma,
    exp,
    expm1,
    full_like,
    isclose,
    lgamma,
    log,
    log1p,
    ones_like,
    rand,
    where,
    zeros_like,
)
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .parameters import broadcast_all, euler_constant
from .transformed import TransformedDistribution
from .transforms.bijections import AffineTransform, ExpTransform, PowerTransform

__all__ = ["Exponential", "GeneralizedPareto", "Kumaraswamy", "Pareto", "Uniform", "Weibull"]


class Exponential(ExponentialFamily):
    """Waiting times at ``rate`` events in a unit of time."""

    arg_constraints: ClassVar[Any] = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / (self.rate * self.rate)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = self.rate.new_empty(tuple(shape)).exponential_()
        return drawn / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return -log(-x)


class Uniform(Distribution):
    """Every value of [``low``, ``high``) is as likely as any other."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, (), validate_args)

    @property
    def arg_constraints(self) -> Any:
        return {
            "low": constraints.less_than(self.high), "high": constraints.greater_than(self.low),
        }  # fmt: skip

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        """From ``low`` to ``high``."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = rand(*shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + noise * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return log(inside.to(self.low.dtype)) - log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return log(self.high - self.low)


class Pareto(TransformedDistribution):
    """Values above ``scale`` whose probability to be exceeded falls with the power ``alpha``."""

    arg_constraints: ClassVar[Any] = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        chain = [ExpTransform(), AffineTransform(0, self.scale)]
        super().__init__(base, chain, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        """From ``scale`` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """Infinite for ``alpha`` up to 1."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        """Infinite for ``alpha`` up to 2."""
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + (1 + 1 / self.alpha)


class Weibull(TransformedDistribution):
    """Times to a failure whose rate changes with the power ``concentration`` - 1 of the time."""

    arg_constraints: ClassVar[Any] = {
        "scale": constraints.positive, "concentration": constraints.positive,
    }  # fmt: skip
    support = constraints.positive
    _stored: ClassVar[Any] = {"concentration_reciprocal": 0}

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = 1 / self.concentration
        base = Exponential(ones_like(self.scale), validate_args=validate_args)
        power = PowerTransform(self.concentration_reciprocal)
        chain = [power, AffineTransform(0, self.scale)]
        super().__init__(base, chain, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        return exp(lgamma(1 + n * self.concentration_reciprocal))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        share = (self.concentration - 1) / self.concentration
        return self.scale * share**self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (self._moment(2) - self._moment(1) ** 2)

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + log(self.scale * inverse) + 1


class Kumaraswamy(TransformedDistribution):
    """On the unit interval, near the beta distribution, with cumulative distribution function
    1 - (1 - x**concentration1) ** concentration0."""

    arg_constraints: ClassVar[Any] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        low, high = zeros_like(self.concentration0), ones_like(self.concentration0)
        chain = [
            PowerTransform(1 / self.concentration0), AffineTransform(1, -1),
            PowerTransform(1 / self.concentration1),
        ]  # fmt: skip
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, chain, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """nan where the density is highest at an end."""
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** (1 / a)
        return where((a < 1) | (b < 1), math.nan, found)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean**2

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1) + euler_constant
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - log(a) - log(b)


class GeneralizedPareto(Distribution):
    """How far values exceed a threshold ``loc``: with tails that end (``concentration`` < 0), fall
    exponentially (0), or with a power (> 0)."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        """From ``loc`` to where the tail ends."""
        end = self.loc - self.scale / self.concentration
        end = where(self.concentration < 0, end, full_like(end, math.inf))
        return constraints.interval(self.loc, end)

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where ``concentration`` counts as 0, and one that is not."""
        flat = isclose(self.concentration, zeros_like(self.concentration))
        return flat, where(flat, ones_like(self.concentration), self.concentration)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log of the probability of more than ``value``."""
        z = (value - self.loc) / self.scale
        flat, c = self._split()
        return where(flat, -z, -log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log of the probability of a value not above ``value``."""
        return log1p(-exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return -expm1(self.log_survival_function(value))

    def icdf(self, value: Tensor) -> Tensor:
        flat, c = self._split()
        far = -log1p(-value)
        return self.loc + self.scale * where(flat, far, expm1(c * far) / c)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(*shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, c = self._split()
        return where(flat, -z, -(1 / c + 1) * log1p(c * z)) - log(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1

    @property
    def mean(self) -> Tensor:
        """Infinite for ``concentration`` from 1 on."""
        c = self.concentration
        return where(c < 1, self.loc + self.scale / (1 - c), full_like(c, math.inf))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite for ``concentration`` from 1/2 on."""
        c = self.concentration
        found = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return where(c < 0.5, found, full_like(c, math.inf))
