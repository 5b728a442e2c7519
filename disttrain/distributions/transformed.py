"""Distributions of transformed values."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .independent import Independent
from .parameters import sum_rightmost
from .transforms.transform import ComposeTransform, Transform

__all__ = ["TransformedDistribution"]


def of_base(name: str, text: str) -> Any:
    """The property of a transformed distribution that is ``base_dist``'s attribute ``name``."""
    return property(attrgetter(f"base_dist.{name}"), doc=text)


class TransformedDistribution(Distribution):
    """Of t(x) for x of ``base_distribution``, with ``transforms`` applied one after the other: the
    density of x over the absolute Jacobian. ValueError: no transforms, or too small values."""

    arg_constraints: ClassVar[Any] = {}
    base_dist: Any

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.transforms = _listed(transforms)
        whole = ComposeTransform(self.transforms)
        self.base_dist, shape = _fitted(base_distribution, whole)
        change = whole.codomain.event_dim - whole.domain.event_dim
        dims = max(whole.codomain.event_dim, len(base_distribution.event_shape) + change)
        cut = len(shape) - dims
        super().__init__(shape[:cut], shape[cut:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        batch = Size(batch_shape)
        self._expand_into(new, batch)
        shape: Sequence[int] = (*batch, *self._event_shape)
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        kept = len(shape) - len(self.base_dist.event_shape)
        new.base_dist, new.transforms = self.base_dist.expand(shape[:kept]), self.transforms
        Distribution.__init__(new, batch, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def has_rsample(self) -> Any:  # type: ignore[override]
        """Whether the base has."""
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """The last transform's values."""
        if not self.transforms:
            return self.base_dist.support
        support: Constraint = self.transforms[-1].codomain
        more = len(self._event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        dims, y, total = len(self._event_shape), value, None
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            term = sum_rightmost(term, dims - transform.domain.event_dim)
            total, y = term if total is None else total + term, x
        base = self.base_dist.log_prob(y)
        base = sum_rightmost(base, dims - len(self.base_dist.event_shape))
        return base if total is None else base - total

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))

    def _turned(self, probability: Tensor) -> Tensor:
        """1 - ``probability`` where the transforms turn the order round."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5


def _listed(transforms: Any) -> list[Transform]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(t, Transform) for t in transforms):
        raise ValueError("transforms must be a Transform or a list of Transforms")
    return transforms


def _fitted(base: Distribution, whole: ComposeTransform) -> tuple[Distribution, Size]:
    """``base`` with as large a batch and as many event dimensions as the transform takes, and the
    shape of its values behind it."""
    given, dims = (*base.batch_shape, *base.event_shape), len(base.event_shape)
    if len(given) < whole.domain.event_dim:
        raise ValueError(
            "base_distribution needs to have shape with size at least "
            f"{whole.domain.event_dim}, but got {Size(given)}."
        )
    out = Size(whole.forward_shape(given))
    taken = tuple(whole.inverse_shape(out))
    if taken != given:
        base = base.expand(taken[: len(taken) - dims])
    more = whole.domain.event_dim - dims
    return (Independent(base, more) if more > 0 else base), out
