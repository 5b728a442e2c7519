"""Distributions over a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..core.types.dtypes import finfo
from ..ops.api import (
    arange,
    bernoulli,
    broadcast_tensors,
    exp,
    eye,
    full,
    log,
    log1p,
    multinomial,
    rand,
    where,
)
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .parameters import (
    ProbsOrLogits,
    all_true,
    broadcast_all,
    clamp_probs,
    either,
    lazy_property,
    logits_to_probs,
    softplus,
)

__all__ = [
    "Bernoulli", "Categorical", "ContinuousBernoulli", "Geometric", "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
]  # fmt: skip

_COIN = {"probs": constraints.unit_interval, "logits": constraints.real}
_CLASSES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Coin(ProbsOrLogits, Distribution):
    """One parameter: a probability ``probs``, or its log-odds ``logits``."""

    arg_constraints: ClassVar[Any] = _COIN

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name, given = either(probs, logits)
        (given,) = broadcast_all(given)
        setattr(self, name, given)
        super().__init__(given.shape, (), validate_args)

    def _cross_entropy(self, value: Tensor) -> Tensor:
        """-log of the probability of ``value`` (0 or 1, or between)."""
        return softplus(self.logits) - value * self.logits


class Bernoulli(Coin, ExponentialFamily):
    """1 with probability ``probs`` (or ``sigmoid(logits)``), else 0. Samples have the type of the
    parameter."""

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """nan where both are as likely."""
        likelier = (self.probs >= 0.5).to(self.probs.dtype)
        return where(self.probs == 0.5, math.nan, likelier)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -self._cross_entropy(value)

    def entropy(self) -> Tensor:
        return self._cross_entropy(self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(
            self, arange(2, dtype=self._param.dtype, device=self._param.device), expand
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return softplus(x)


def enumerated(of: Distribution, values: Tensor, expand: bool) -> Tensor:
    """``values`` along a first dimension before those of the batch."""
    values = values.reshape(-1, *[1] * len(of.batch_shape))
    return values.expand(-1, *of.batch_shape) if expand else values


class Geometric(Coin):
    """How many trials of probability ``probs`` fail before the first success: 0, 1, 2, ..."""

    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not all_true(self.probs > 0):
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape "
                f"{tuple(self.probs.shape)}) of distribution {self!r} to be positive but found "
                f"invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            drawn = rand(*shape, dtype=self.probs.dtype, device=self.probs.device)
            drawn = drawn.clamp(min=float(finfo(drawn.dtype).tiny))
            return (log(drawn) / log1p(-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        sure = where((probs == 1) & (value == 0), 0.0, probs)  # (0 times -inf counts as 0)
        return value * log1p(-sure) + log(self.probs)

    def entropy(self) -> Tensor:
        return self._cross_entropy(self.probs) / self.probs


class ContinuousBernoulli(Coin, ExponentialFamily):
    """On the unit interval, with density proportional to probs**value * (1 - probs)**(1 - value)
    (Loaiza-Ganem and Cunningham, 2019). Between ``lims``, where formulas lose their digits, by
    Taylor's series about 1/2."""

    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _kept = ("_lims",)

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        name, given = either(probs, logits)
        (given,) = broadcast_all(given)
        checked = self._validate_args if validate_args is None else validate_args
        if name == "probs":
            if checked and not all_true(_COIN["probs"].check(given)):
                raise ValueError("The parameter probs has invalid values")
            given = clamp_probs(given)
        super().__init__(**{name: given}, validate_args=validate_args)
        self._lims = lims

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities, apart from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _far(self) -> Tensor:
        """Where formulas keep their digits."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        """``probs``, and a value that is far where they are near 1/2."""
        return where(self._far(), self.probs, self.probs * 0 + self._lims[0])

    def _log_norm(self) -> Tensor:
        """log of what the density is scaled by."""
        p = self._cut()
        low, high = where(p <= 0.5, p, p * 0), where(p >= 0.5, p, p * 0 + 1)
        turned = where(p <= 0.5, log1p(-2.0 * low), log(2.0 * high - 1.0))
        found = log((log1p(-p) - log(p)).abs()) - turned
        x = (self.probs - 0.5) ** 2
        return where(self._far(), found, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p, x = self._cut(), self.probs - 0.5
        found = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - log(p))
        return where(self._far(), found, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        p, x = self._cut(), (self.probs - 0.5) ** 2
        found = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (log1p(-p) - log(p)) ** 2
        return where(self._far(), found, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(*shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_norm() - self._cross_entropy(value)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p = self._cut()
        found = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        found = where(self._far(), found, value)
        return where(value <= 0, 0.0, where(value >= 1, 1.0, found))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut()
        rest = log1p(-p)
        found = (log1p(-p + value * (2.0 * p - 1.0)) - rest) / (log(p) - rest)
        return where(self._far(), found, value)

    def entropy(self) -> Tensor:
        none, one = log1p(-self.probs), log(self.probs)
        return self.mean * (none - one) - self._log_norm() - none

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        far = (x <= low) | (x > high)
        cut = where(far, x, x * 0 + low)
        found = log((exp(cut) - 1).abs()) - log(cut.abs())
        return where(far, found, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)


class Categorical(ProbsOrLogits, Distribution):
    """One of k categories, numbered from 0. ``probs`` [*batch, k] (scaled to a sum of 1) or
    ``logits`` [*batch, k]; samples are int64 [*sample_shape, *batch]."""

    arg_constraints: ClassVar[Any] = _CLASSES
    has_enumerate_support = True
    _is_binary = False

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        name, given = either(probs, logits)
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
        super().__init__(given.shape[:-1], (), validate_args)

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        """The numbers of categories."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        """nan: categories are no quantities."""
        return self._nan()

    @property
    def variance(self) -> Tensor:
        """nan: categories are no quantities."""
        return self._nan()

    def _nan(self) -> Tensor:
        like = self.probs
        return full(self._extended_shape(), math.nan, dtype=like.dtype, device=like.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            count = Size(sample_shape).numel()
            rows = self.probs.detach().reshape(-1, self._num_events)
            return multinomial(rows, count, True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        # log 0 is -inf, and 0 * -inf is to count as 0
        logits = self.logits.clamp(min=float(finfo(self.logits.dtype).min))
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(self, arange(self._num_events, device=self._param.device), expand)


class OverCategories(Distribution):
    """Vectors with a number for each category of a ``Categorical``, which has the parameters."""

    arg_constraints: ClassVar[Any] = _CLASSES
    _inner = ("_categorical",)

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self._categorical.logits

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def param_shape(self) -> Size:
        """Of the parameter."""
        return self._param.shape


class OneHotCategorical(OverCategories):
    """``Categorical`` whose samples are vectors with a 1 at the category."""

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._vectors(self.probs.argmax(-1), self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, index: Tensor, like: Tensor) -> Tensor:
        zeros = like.new_zeros((*index.shape, self._event_shape[0]))
        return zeros.scatter(-1, index.unsqueeze(-1), 1.0)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._vectors(self._categorical.sample(sample_shape), self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n, batch = self._event_shape[0], self._batch_shape
        values = eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape(n, *[1] * len(batch), n)
        return values.expand(n, *batch, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """``OneHotCategorical`` whose samples pass gradients on to the probabilities as they are
    (Bengio, Léonard and Courville, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
