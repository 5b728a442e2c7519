"""Distributions over a few values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..core.types.dtypes import finfo
from ..ops.api import (
    arange,
    bernoulli,
    broadcast_tensors,
    full,
    log_softmax,
    logaddexp,
    multinomial,
    sigmoid,
    softmax,
    tensor,
)
from .constraints import Constraint, boolean, integer_interval
from .distribution import Distribution


class Categorical(Distribution):
    """One of k categories, numbered from 0. ``probs`` [*batch, k] (scaled to a sum of 1) or
    ``logits`` [*batch, k]; samples are int64 [*sample_shape, *batch]."""

    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = _only_one(probs, logits)
        if given.dim() < 1:
            raise ValueError(f"`{'probs' if logits is None else 'logits'}` parameter must be at "
                             "least one-dimensional.")  # fmt: skip
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], (), validate_args)
        if probs is not None:
            good = (probs >= 0).all(-1) & (probs.sum(-1) > 0)
            self._check("parameter probs", probs, good, "Simplex()")
            self.probs = probs / probs.sum(-1, keepdim=True)
            tiny = _tiny(self.probs)
            self.logits = self.probs.clamp(min=tiny, max=1 - tiny).log()
        else:
            self._check("parameter logits", given, given == given, "IndependentConstraint(Real())")
            self.logits = log_softmax(given, dim=-1)
            self.probs = softmax(given, dim=-1)

    @property
    def param_shape(self) -> Size:
        return self.probs.shape

    @property
    def support(self) -> Constraint:
        return integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            count = Size(sample_shape).numel()
            rows = self.probs.detach().reshape(-1, self._num_events)
            return multinomial(rows, count, True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        good = (value >= 0) & (value < self._num_events) & (value % 1 == 0)
        self._check("value", value, good, f"IntegerInterval(0, {self._num_events - 1})")
        index = value.long().unsqueeze(-1)
        index, logits = broadcast_tensors(index, self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        # log 0 is -inf, and 0 * -inf is to count as 0
        logits = self.logits.clamp(min=float(finfo(self.logits.dtype).min))
        return -(logits * self.probs).sum(-1)

    def expand(self, batch_shape: Sequence[int]) -> Categorical:
        """The same distributions, repeated to ``batch_shape``."""
        shape = (*batch_shape, self._num_events)
        out = Categorical(logits=self.logits.expand(shape), validate_args=False)
        out.probs = self.probs.expand(shape)  # what is impossible stays so
        return out

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, device=self.logits.device).view(
            -1, *[1] * len(self._batch_shape)
        )
        return values.expand(-1, *self._batch_shape) if expand else values

    def _shown(self) -> dict[str, Any]:
        return {"probs": self.probs.size(), "logits": self.logits.size()}


class Bernoulli(Distribution):
    """1 with probability ``probs`` (or ``sigmoid(logits)``), else 0. Samples have the type of the
    parameter."""

    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = _only_one(probs, logits)
        given = given if isinstance(given, Tensor) else tensor(float(given))
        super().__init__(given.shape, (), validate_args)
        if probs is not None:
            self._check("parameter probs", given, (given >= 0) & (given <= 1), "Interval(0, 1)")
            tiny = _tiny(given)
            self.probs, safe = given, given.clamp(min=tiny, max=1 - tiny)
            self.logits = safe.log() - (-safe).log1p()
        else:
            self._check("parameter logits", given, given == given, "Real()")
            self.logits, self.probs = given, sigmoid(given)

    @property
    def param_shape(self) -> Size:
        return self.probs.shape

    @property
    def support(self) -> Constraint:
        return boolean

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        even = self.probs == 0.5
        return (self.probs >= 0.5).to(self.probs.dtype).masked_fill(even, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check("value", value, (value == 0) | (value == 1), "Boolean()")
        return value * self.logits - _softplus(self.logits)

    def entropy(self) -> Tensor:
        return _softplus(self.logits) - self.probs * self.logits

    def expand(self, batch_shape: Sequence[int]) -> Bernoulli:
        """The same distributions, repeated to ``batch_shape``."""
        out = Bernoulli(logits=self.logits.expand(batch_shape), validate_args=False)
        out.probs = self.probs.expand(batch_shape)  # 0 and 1 stay so
        return out

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(2, dtype=self.probs.dtype, device=self.probs.device).view(
            -1, *[1] * len(self._batch_shape)
        )
        return values.expand(-1, *self._batch_shape) if expand else values

    def _shown(self) -> dict[str, Any]:
        return {"probs": self.probs, "logits": self.logits}


def _only_one(probs: Tensor | None, logits: Tensor | None) -> Any:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return logits if probs is None else probs


def _softplus(x: Tensor) -> Tensor:
    return logaddexp(x, x.detach() * 0)


def _tiny(x: Tensor) -> float:
    return float(finfo(x.dtype).eps)
