"""Distributions that are one standard shape, moved and stretched, and von Mises' on the circle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..core.types.dtypes import finfo
from ..ops.api import (
    as_tensor,
    atan,
    cos,
    exp,
    expm1,
    full_like,
    log,
    log1p,
    ones_like,
    rand,
    tan,
    where,
    zeros_like,
)
from ..ops.functions.sampling import standard_von_mises
from ..ops.primitives.special import i0e, i1e
from . import constraints
from .distribution import Distribution
from .parameters import broadcast_all, euler_constant, lazy_property
from .positive import Uniform
from .transformed import TransformedDistribution, of_base
from .transforms.bijections import AbsTransform, AffineTransform, ExpTransform

__all__ = ["Cauchy", "Gumbel", "HalfCauchy", "Laplace", "VonMises"]


class LocationScale(Distribution):
    """One shape, symmetric about ``loc`` and stretched by ``scale``, which are broadcast against
    each other."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Half(TransformedDistribution):
    """The absolute value of a number about 0 of a symmetric distribution, ``_whole``."""

    arg_constraints: ClassVar[Any] = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _whole: ClassVar[type[LocationScale]]
    scale = of_base("scale", "That of the distribution before the absolute value.")

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        base = self._whole(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class Laplace(LocationScale):
    """Density exp(-|value - loc| / scale) / (2 scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale * self.scale

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -log(2 * self.scale) - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return 0.5 - 0.5 * z.sign() * expm1(-z.abs())

    def icdf(self, value: Tensor) -> Tensor:
        middle = value - 0.5
        return self.loc - self.scale * middle.sign() * log1p(-2 * middle.abs())

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)


class Cauchy(LocationScale):
    """The ratio of two independent normal numbers, about the median ``loc``; no mean exists."""

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - log(self.scale) - log1p(z * z)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + log(self.scale)


class HalfCauchy(Half):
    """The absolute value of a Cauchy number about 0 with ``scale``, which is the median."""

    _whole = Cauchy

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value = as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)


class Gumbel(TransformedDistribution):
    """The limit of maxima; ``loc`` is the mode."""

    arg_constraints: ClassVar[Any] = LocationScale.arg_constraints
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = finfo(self.loc.dtype)
        low = full_like(self.loc, float(limits.tiny))
        high = full_like(self.loc, 1 - float(limits.eps))
        turned = AffineTransform(0, -ones_like(self.scale))
        chain = [
            ExpTransform().inv, turned, ExpTransform().inv, AffineTransform(self.loc, -self.scale),
        ]  # fmt: skip
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, chain, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev * self.stddev

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (self.loc - value) / self.scale
        return z - exp(z) - log(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + euler_constant)


class VonMises(Distribution):
    """Angles about ``loc``, with density proportional to exp(concentration cos(value - loc))."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """Of angles: the direction of the mean vector."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        """Of angles: 1 - the length of the mean vector."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        log_i0 = log(i0e(self.concentration)) + self.concentration
        return self.concentration * cos(value - self.loc) - math.log(2 * math.pi) - log_i0

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            turned = standard_von_mises(self.concentration.expand(shape)) + self.loc
            return (turned + math.pi) % (2 * math.pi) - math.pi


def open_uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    """Numbers in the open interval (0, 1), where logarithms of them and of 1 - them are finite."""
    drawn = rand(*shape, dtype=like.dtype, device=like.device)
    limit = finfo(like.dtype)
    return drawn.clamp(min=float(limit.tiny), max=1 - float(limit.eps) / 2)
