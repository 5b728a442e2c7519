"""Continuous distributions that are a standard one moved and stretched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..core.types.dtypes import finfo
from ..ops.api import atan, broadcast_tensors, exp, expm1, full_like, log, log1p, rand, tan, tensor
from .constraints import Constraint, positive, real
from .distribution import Distribution

EULER = 0.57721566490153286060


class LocationScale(Distribution):
    """``loc`` + ``scale`` * a standard variable; both are broadcast against each other."""

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": real, "scale": positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def support(self) -> Constraint:
        return real

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The same distributions, repeated to ``batch_shape``."""
        shape = tuple(batch_shape)
        return type(self)(self.loc.expand(shape), self.scale.expand(shape), validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * self._quantile(open_uniform(shape, self.loc))

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value not above ``value``."""
        self._validate_sample(value)
        return self._below((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with probability ``value``."""
        return self.loc + self.scale * self._quantile(value)

    def _quantile(self, p: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.icdf")

    def _below(self, z: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.cdf")

    def _standard(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    def _shown(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}


class Laplace(LocationScale):
    """Density exp(-|value - loc| / scale) / (2 scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standard(value).abs() - log(2 * self.scale)

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)

    def _quantile(self, p: Tensor) -> Tensor:
        middle = p - 0.5
        return -middle.sign() * log1p(-2 * middle.abs())

    def _below(self, z: Tensor) -> Tensor:
        return 0.5 - 0.5 * z.sign() * expm1(-z.abs())


class Cauchy(LocationScale):
    """The ratio of two independent normal numbers, about the median ``loc``; no mean exists."""

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return -math.log(math.pi) - log(self.scale) - log1p(z * z)

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + log(self.scale)

    def _quantile(self, p: Tensor) -> Tensor:
        return tan(math.pi * (p - 0.5))

    def _below(self, z: Tensor) -> Tensor:
        return atan(z) / math.pi + 0.5


class Gumbel(LocationScale):
    """The limit of maxima; ``loc`` is the mode."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev * self.stddev

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return -z - exp(-z) - log(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER)

    def _quantile(self, p: Tensor) -> Tensor:
        return -log(-log(p))

    def _below(self, z: Tensor) -> Tensor:
        return exp(-exp(-z))


def together(*given: Any) -> tuple[Tensor, ...]:
    """Parameters as tensors of one shape; numbers take the first tensor's type and device."""
    like = next((t for t in given if isinstance(t, Tensor)), tensor(0.0))
    parts = [
        t if isinstance(t, Tensor) else tensor(float(t), dtype=like.dtype, device=like.device)
        for t in given
    ]
    return tuple(broadcast_tensors(*parts))


def open_uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    """Numbers in the open interval (0, 1), where logarithms of them and of 1 - them are finite."""
    drawn = rand(*shape, dtype=like.dtype, device=like.device)
    limit = finfo(like.dtype)
    return drawn.clamp(min=float(limit.tiny), max=1 - float(limit.eps) / 2)
