"""Continuous relaxations of discrete distributions, whose samples have gradients: the concrete
distribution (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Size, Tensor
from ..ops.api import broadcast_tensors, log, log1p, rand
from . import constraints
from .discrete import Categorical, Coin
from .distribution import Distribution
from .parameters import broadcast_all, clamp_probs, softplus
from .transformed import TransformedDistribution
from .transforms.bijections import ExpTransform, SigmoidTransform

__all__ = [
    "ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
]  # fmt: skip

_COIN = {"probs": constraints.unit_interval, "logits": constraints.real}
_CLASSES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class LogitRelaxedBernoulli(Coin):
    """The log-odds of ``RelaxedBernoulli``."""

    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        noise = clamp_probs(rand(*shape, dtype=probs.dtype, device=probs.device))
        both = log(noise) - log1p(-noise) + log(probs) - log1p(-probs)
        return both / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        apart = logits - value * self.temperature
        return _log(self.temperature) + apart - 2 * softplus(apart)


def _log(temperature: Any) -> Any:
    return log(temperature) if isinstance(temperature, Tensor) else math.log(temperature)


class RelaxedBernoulli(TransformedDistribution):
    """Between 0 and 1, near ``Bernoulli`` for a small ``temperature``."""

    arg_constraints: ClassVar[Any] = _COIN
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far from 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs


class ExpRelaxedCategorical(Distribution):
    """The logarithm of ``RelaxedOneHotCategorical``."""

    arg_constraints: ClassVar[Any] = _CLASSES
    support = constraints.real_vector  # (a submanifold of it)
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(ExpRelaxedCategorical, _instance)
        new.temperature = self.temperature
        new._categorical = self._categorical.expand(batch_shape)
        return super().expand(batch_shape, new)

    @property
    def param_shape(self) -> Size:
        """Of the parameter."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = rand(*shape, dtype=self.logits.dtype, device=self.logits.device)
        gumbel = -log(-log(clamp_probs(drawn)))
        scores = (self.logits + gumbel) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        k = logits.shape[-1]
        score = logits - value * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + math.lgamma(k) + (k - 1) * _log(self.temperature)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of a simplex, near the corners for a small ``temperature``."""

    arg_constraints: ClassVar[Any] = _CLASSES
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far from the corners."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
