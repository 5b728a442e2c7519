"""Continuous relaxations of discrete distributions, whose samples have gradients: the concrete
distribution (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Tensor
from ..ops.api import broadcast_tensors, log, log1p, rand
from . import constraints
from .discrete import Coin, OverCategories
from .parameters import broadcast_all, clamp_probs, softplus
from .transformed import TransformedDistribution, of_base
from .transforms.bijections import ExpTransform, SigmoidTransform

__all__ = [
    "ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
]  # fmt: skip


class LogitRelaxedBernoulli(Coin):
    """The log-odds of ``RelaxedBernoulli``."""

    support = constraints.real
    has_rsample = True
    _kept = ("temperature",)

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

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


class Relaxed(TransformedDistribution):
    """Near a discrete distribution for a small ``temperature``."""

    has_rsample = True
    temperature = of_base("temperature", "How far from what the discrete distribution gives.")
    logits = of_base("logits", "Log-odds, or log-probabilities of classes.")
    probs = of_base("probs", "Probabilities.")


class RelaxedBernoulli(Relaxed):
    """Between 0 and 1, near ``Bernoulli`` for a small ``temperature``."""

    arg_constraints: ClassVar[Any] = Coin.arg_constraints
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(OverCategories):
    """The logarithm of ``RelaxedOneHotCategorical``."""

    support = constraints.real_vector  # (a submanifold of it)
    has_rsample = True
    _kept = ("temperature",)

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

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


class RelaxedOneHotCategorical(Relaxed):
    """Points of a simplex, near the corners for a small ``temperature``."""

    arg_constraints: ClassVar[Any] = OverCategories.arg_constraints
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
