"""Continuous distributions over an interval or the numbers not below 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..ops.api import expm1, full_like, log, log1p, rand
from .constraints import Constraint, interval, nonnegative, positive, real
from .distribution import Distribution
from .location_scale import open_uniform, together


class Exponential(Distribution):
    """Waiting times at ``rate`` events in a unit of time."""

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": positive}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def support(self) -> Constraint:
        return nonnegative

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return full_like(self.rate, 0.0)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / (self.rate * self.rate)

    def expand(self, batch_shape: Sequence[int]) -> Exponential:
        """The same distributions, repeated to ``batch_shape``."""
        return Exponential(self.rate.expand(tuple(batch_shape)), validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return -log(open_uniform(self._extended_shape(sample_shape), self.rate)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value not above ``value``."""
        self._validate_sample(value)
        return -expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with probability ``value``."""
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - log(self.rate)

    def _shown(self) -> dict[str, Any]:
        return {"rate": self.rate}


class Uniform(Distribution):
    """Every value of [``low``, ``high``) is as likely as any other."""

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"low": real, "high": real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError(f"Uniform is not defined when low >= high; given {self!r}")

    @property
    def support(self) -> Constraint:
        return interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12

    def expand(self, batch_shape: Sequence[int]) -> Uniform:
        """The same distributions, repeated to ``batch_shape``."""
        shape = tuple(batch_shape)
        return Uniform(self.low.expand(shape), self.high.expand(shape), validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = rand(*shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + noise * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return log(inside.to(self.low.dtype)) - log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value not above ``value``."""
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with probability ``value``."""
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return log(self.high - self.low)

    def _shown(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}
