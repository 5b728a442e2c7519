"""What all distributions have in common. Knows shapes; the rest is each one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..ops.api import exp, sqrt
from .constraints import Constraint


class Distribution:
    """A batch of distributions over values of one shape.

    ``batch_shape``: how many, independent of each other; ``event_shape``: of one value. Samples are
    [*sample_shape, *batch_shape, *event_shape], and a log-probability is
    [*sample_shape, *batch_shape]. Parameters are checked when it is made, values when their
    probability is asked for, unless ``validate_args=False``: ``ValueError``.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    _validate_args = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        for name, constraint in self.arg_constraints.items() if self._validate_args else ():
            value = getattr(self, name)
            self._check(f"parameter {name}", value, constraint.check(value), repr(constraint))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where nothing else is said."""
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The values that samples can have."""
        raise NotImplementedError(f"{type(self).__name__}.support")

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Tensor:
        return sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values without a gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values that the parameters get gradients through."""
        raise NotImplementedError(f"{type(self).__name__}.rsample: has_rsample is False")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability, or its density, at ``value``."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob")

    def entropy(self) -> Tensor:
        """In nats, [*batch_shape]."""
        raise NotImplementedError(f"{type(self).__name__}.entropy")

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The same distributions, repeated to ``batch_shape``."""
        raise NotImplementedError(f"{type(self).__name__}.expand")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values there are, along the first dimension."""
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support")

    def perplexity(self) -> Tensor:
        return exp(self.entropy())

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        """Refuse a value outside of the support."""
        if self._validate_args:
            self._check("value argument", value, self.support.check(value), repr(self.support))

    def _check(self, name: str, value: Tensor, good: Tensor, needed: str) -> None:
        """Refuse a parameter or a value that is not ``good`` everywhere."""
        if self._validate_args and not bool(good.all()):
            raise ValueError(
                f"Expected {name} (Tensor of shape {tuple(value.shape)}) of distribution "
                f"{type(self).__name__} to satisfy the constraint {needed}, but found invalid "
                f"values:\n{value}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}: {v}' for k, v in self._shown().items())})"

    def _shown(self) -> dict[str, Any]:
        return {}
