"""Transforms of numbers, each for itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...core.types.dtypes import finfo
from ...ops.api import atanh, broadcast_shapes, exp, expm1, full_like, log, log1p, sigmoid, tanh
from .. import constraints
from ..constraints import Constraint
from ..distribution import Distribution
from ..parameters import all_true, lazy_property, softplus
from .transform import Transform


class ExpTransform(Transform):
    """y = exp(x)"""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent"""

    domain, codomain = constraints.positive, constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return PowerTransform(self.exponent, cache_size=cache_size)

    @lazy_property
    def sign(self) -> Any:  # type: ignore[override]
        if isinstance(self.exponent, Tensor):
            return self.exponent.sign()
        return _sign(self.exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _equal(self.exponent, other.exponent)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log((self.exponent * y / x).abs())

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return broadcast_shapes(tuple(shape), getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)), kept apart from 0 and 1"""

    domain, codomain = constraints.real, constraints.unit_interval
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigmoidTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        y = _inside(y)
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept apart from 0 and 1."""
    return _inside(sigmoid(x))


def _inside(y: Tensor) -> Tensor:
    limits = finfo(y.dtype)
    return y.clamp(min=float(limits.tiny), max=1.0 - float(limits.eps))


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))"""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftplusTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(-expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)"""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)
    bijective, sign = True, 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TanhTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|, of whose two inverses the positive one is taken"""

    domain, codomain = constraints.real, constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x. ``event_dim``: of the values: 0, 1 for vectors."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return _real_of(self._event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return _real_of(self._event_dim)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _equal(self.loc, other.loc)
            and _equal(self.scale, other.scale)
        )

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        return self.scale.sign() if isinstance(self.scale, Tensor) else _sign(self.scale)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            each = log(self.scale.abs())
        else:
            each = full_like(x, math.log(abs(self.scale)))
        if self._event_dim:
            each = each.expand(broadcast_shapes(tuple(each.shape), tuple(x.shape)))
            each = each.reshape(*each.shape[: -self._event_dim], -1).sum(-1)
        return each.expand(tuple(x.shape[: x.dim() - self._event_dim]))

    def forward_shape(self, shape: Sequence[int]) -> Any:
        own = (getattr(p, "shape", ()) for p in (self.loc, self.scale))
        return broadcast_shapes(tuple(shape), *own)

    inverse_shape = forward_shape


def _real_of(dims: int) -> Constraint:
    return constraints.independent(constraints.real, dims) if dims else constraints.real


def _sign(x: float) -> int:
    return (x > 0) - (x < 0)


def _equal(a: Any, b: Any) -> bool:
    same = a == b
    return all_true(same) if isinstance(same, Tensor) else bool(same)


class CumulativeDistributionTransform(Transform):
    """y = the cumulative distribution function of ``distribution`` at x"""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)
