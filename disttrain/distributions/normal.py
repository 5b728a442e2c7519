"""The normal distribution and what follows from it: log-normal, half-normal, logistic-normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..ops.api import erf, erfinv, exp, expm1, log, normal, randn, where
from . import constraints
from .exp_family import ExponentialFamily
from .location_scale import Half, LocationScale
from .transformed import TransformedDistribution, of_base
from .transforms.bijections import ExpTransform
from .transforms.coordinates import StickBreakingTransform

__all__ = ["HalfNormal", "LogNormal", "LogisticNormal", "Normal"]


class Normal(LocationScale, ExponentialFamily):
    """Mean ``loc`` and standard deviation ``scale``, which are broadcast against each other."""

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * randn(*shape, dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + log(self.scale)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        precision = 1 / (self.scale * self.scale)
        return self.loc * precision, -0.5 * precision

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return -0.25 * x * x / y + 0.5 * log(-math.pi / y)


class LogNormal(TransformedDistribution):
    """Its logarithm is normal with mean ``loc`` and standard deviation ``scale``."""

    arg_constraints: ClassVar[Any] = LocationScale.arg_constraints
    support = constraints.positive
    has_rsample = True
    loc = of_base("loc", "The mean of the logarithm.")
    scale = of_base("scale", "The standard deviation of the logarithm.")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + self.scale**2 / 2)

    @property
    def mode(self) -> Tensor:
        return exp(self.loc - self.scale**2)

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return expm1(square) * exp(2 * self.loc + square)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class HalfNormal(Half):
    """The absolute value of a normal number about 0 with standard deviation ``scale``."""

    _whole = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)


class LogisticNormal(TransformedDistribution):
    """Points of a simplex whose sticks' log-odds are normal: n parameters for n + 1 numbers."""

    arg_constraints: ClassVar[Any] = LocationScale.arg_constraints
    support = constraints.simplex
    has_rsample = True
    loc = of_base("base_dist.loc", "The means before the transform.")
    scale = of_base("base_dist.scale", "The standard deviations before the transform.")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)
