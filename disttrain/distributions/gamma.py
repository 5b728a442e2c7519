"""The gamma distribution and ratios of gamma numbers: inverse gamma, chi-square, F, Student's t,
beta, Dirichlet. Samples have gradients by implicit differentiation
(``ops/primitives/sampling.py``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..core.types.dtypes import finfo
from ..ops.api import (
    as_tensor,
    digamma,
    full_like,
    igamma,
    lgamma,
    log,
    log1p,
    randn,
    rsqrt,
    stack,
    where,
    xlogy,
)
from ..ops.functions.sampling import standard_dirichlet, standard_gamma
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .parameters import broadcast_all
from .transformed import TransformedDistribution, of_base
from .transforms.bijections import PowerTransform

__all__ = [
    "Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT",
]  # fmt: skip

_SHAPE_RATE = {"concentration": constraints.positive, "rate": constraints.positive}


class Gamma(ExponentialFamily):
    """Density proportional to value ** (concentration - 1) * exp(-rate * value)."""

    arg_constraints: ClassVar[Any] = _SHAPE_RATE
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = standard_gamma(self.concentration.expand(shape)) / self.rate
        return _above_zero(drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return lgamma(x + 1) + (x + 1) * log(-1 / y)


def _above_zero(drawn: Tensor) -> Tensor:
    """Samples that rounding took to 0, as the smallest number. Their gradient stays."""
    least = float(finfo(drawn.dtype).tiny)
    return drawn + (drawn.detach().clamp(min=least) - drawn.detach())


class Chi2(Gamma):
    """The sum of squares of ``df`` standard normal numbers."""

    arg_constraints: ClassVar[Any] = {"df": constraints.positive}
    _stored: ClassVar[Any] = {"concentration": 0, "rate": 0}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class InverseGamma(TransformedDistribution):
    """1 / x for x of ``Gamma(concentration, rate)``."""

    arg_constraints: ClassVar[Any] = _SHAPE_RATE
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        inverse = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, inverse, validate_args=validate_args)

    concentration = of_base("concentration", "Of the gamma distribution.")
    rate = of_base("rate", "Of the gamma distribution.")

    @property
    def mean(self) -> Tensor:
        """Infinite for ``concentration`` up to 1."""
        a = self.concentration
        return where(a > 1, self.rate / (a - 1), full_like(a, math.inf))

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """Infinite for ``concentration`` up to 2."""
        a = self.concentration
        found = self.rate**2 / ((a - 1) ** 2 * (a - 2))
        return where(a > 2, found, full_like(a, math.inf))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class FisherSnedecor(Distribution):
    """The ratio of two independent mean squares, of ``df1`` and of ``df2`` normal numbers."""

    arg_constraints: ClassVar[Any] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """nan for ``df2`` up to 2."""
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), full_like(self.df2, math.nan))

    @property
    def mode(self) -> Tensor:
        """nan for ``df1`` up to 2."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, found, full_like(found, math.nan))

    @property
    def variance(self) -> Tensor:
        """nan for ``df2`` up to 4."""
        a, b = self.df1, self.df2
        found = 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))
        return where(b > 4, found, full_like(b, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        one, other = (
            Gamma(df * 0.5, df, validate_args=False).rsample(sample_shape)
            for df in (self.df1, self.df2)
        )
        return _above_zero(one / other)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        beta = lgamma(a) + lgamma(b) - lgamma(a + b)
        return a * log(ratio) + (a - 1) * log(value) - (a + b) * log1p(ratio * value) - beta


class StudentT(Distribution):
    """A normal number over the root of an independent mean square of ``df`` others, stretched by
    ``scale`` about ``loc``."""

    arg_constraints: ClassVar[Any] = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }  # fmt: skip
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """nan for ``df`` up to 1."""
        return where(self.df > 1, self.loc, full_like(self.loc, math.nan))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite for ``df`` up to 2, nan up to 1."""
        found = self.scale**2 * self.df / (self.df - 2)
        found = where(self.df > 2, found, full_like(found, math.inf))
        return where(self.df > 1, found, full_like(found, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        top = randn(*shape, dtype=self.df.dtype, device=self.df.device)
        below = Chi2(self.df, validate_args=False).rsample(sample_shape) / self.df
        return self.loc + self.scale * top * rsqrt(below)

    def _log_norm(self) -> Tensor:
        """log of the integral of (1 + z²/df) ** -(df + 1)/2."""
        half = 0.5 * self.df
        root = 0.5 * log(self.df) + 0.5 * math.log(math.pi)
        return root + lgamma(half) - lgamma(half + 0.5)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        tail = -0.5 * (self.df + 1) * log1p(z * z / self.df)
        return tail - log(self.scale) - self._log_norm()

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        tail = (half + 0.5) * (digamma(half + 0.5) - digamma(half))
        return log(self.scale) + tail + self._log_norm()


class Dirichlet(ExponentialFamily):
    """Points of a simplex: gamma numbers of ``concentration`` [*batch, k] over their sum."""

    arg_constraints: ClassVar[Any] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def _total(self) -> Tensor:
        return self.concentration.sum(-1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._total()

    @property
    def mode(self) -> Tensor:
        """A corner where all of ``concentration`` are below 1."""
        above = (self.concentration - 1).clamp(min=0)
        inside = above / above.sum(-1, keepdim=True)
        corners = (self.concentration < 1).all(-1, keepdim=True)
        largest = inside.argmax(-1, keepdim=True)
        corner = inside.new_zeros(tuple(inside.shape)).scatter(-1, largest, 1.0)
        return where(corners, corner, inside)

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self._total()
        return a * (total - a) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return standard_dirichlet(self.concentration.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, total, k = self.concentration, self.concentration.sum(-1), self.concentration.shape[-1]
        beta = lgamma(a).sum(-1) - lgamma(total)
        return beta - (k - total) * digamma(total) - ((a - 1) * digamma(a)).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return lgamma(x).sum(-1) - lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """Density proportional to value**(concentration1 - 1) * (1 - value)**(concentration0 - 1)."""

    arg_constraints: ClassVar[Any] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support = constraints.unit_interval
    has_rsample = True
    _inner = ("_dirichlet",)

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        both = stack(list(broadcast_all(concentration1, concentration0)), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, (), validate_args)

    @property
    def concentration1(self) -> Tensor:
        """What draws to 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """What draws to 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        return self._dirichlet.variance[..., 0]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return lgamma(x) + lgamma(y) - lgamma(x + y)
