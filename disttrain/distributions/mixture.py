"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..ops.api import log_softmax
from . import constraints
from .constraints import Constraint, MixtureSameFamilyConstraint
from .discrete import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """One of the k distributions along the last batch dimension of ``component_distribution``,
    chosen by ``mixture_distribution``. ValueError: numbers of components that differ."""

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        _check(mixture_distribution, component_distribution)
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = mixture_distribution.param_shape[-1]
        batch = component_distribution.batch_shape[:-1]
        super().__init__(batch, component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new, shape = self._get_checked_instance(MixtureSameFamily, _instance), Size(batch_shape)
        inner = (*shape, self._num_component)
        new._component_distribution = self._component_distribution.expand(inner)
        new._mixture_distribution = self._mixture_distribution.expand(shape)
        new._num_component = self._num_component
        Distribution.__init__(new, shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Constraint:
        """What every component allows."""
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """Which component is how likely."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along the last batch dimension."""
        return self._component_distribution

    @property
    def _axis(self) -> int:
        """The dimension of the components."""
        return -1 - len(self._event_shape)

    def _weights(self) -> Tensor:
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(self._axis)

    @property
    def variance(self) -> Tensor:
        """By the law of total variance."""
        weights, parts = self._weights(), self._component_distribution
        apart = parts.mean - self.mean.unsqueeze(self._axis)
        return (weights * (parts.variance + apart * apart)).sum(self._axis)

    def cdf(self, value: Tensor) -> Tensor:
        each = self._component_distribution.cdf(value.unsqueeze(self._axis))
        return (each * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        each = self._component_distribution.log_prob(value.unsqueeze(self._axis))
        return (each + log_softmax(self._mixture_distribution.logits, dim=-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            dims = len(self._event_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            batch = (*sample_shape, *self._batch_shape)
            index = chosen.expand(batch).reshape(*batch, 1, *(1,) * dims)
            index = index.expand(*batch, 1, *self._event_shape)
            return drawn.gather(self._axis, index).squeeze(self._axis)

    def __repr__(self) -> str:
        both = self._mixture_distribution, self._component_distribution
        return "MixtureSameFamily(\n  {},\n  {})".format(*both)


def _check(mixture: Any, components: Any) -> None:
    if not isinstance(mixture, Categorical):
        raise ValueError(
            " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
        )
    if not isinstance(components, Distribution):
        raise ValueError(
            "The Component distribution needs to be an instance of torch.distributions.Distribution"
        )
    ours, theirs = mixture.batch_shape, components.batch_shape
    if not theirs:
        raise IndexError("component_distribution needs a batch dimension, the components")
    for one, other in zip(reversed(ours), reversed(theirs[:-1]), strict=False):
        if 1 not in (one, other) and one != other:
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({ours}) is not compatible with "
                f"`component_distribution.batch_shape`({theirs})"
            )
    count, wanted = mixture.param_shape[-1], theirs[-1]
    if count != wanted:
        raise ValueError(
            f"`mixture_distribution component` ({count}) does not equal "
            f"`component_distribution.batch_shape[-1]` ({wanted})"
        )
