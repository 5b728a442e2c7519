"""Batch dimensions counted as part of one value."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.tensor import Tensor
from .constraints import Constraint, independent
from .distribution import Distribution


class Independent(Distribution):
    """``base_distribution`` whose last ``reinterpreted_batch_ndims`` batch dimensions belong to the
    event: log-probabilities and entropies are summed over them. ValueError: it has fewer."""

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        has = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(has):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(has)}"
            )
        kept = len(has) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(has[:kept], (*has[kept:], *base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @property
    def support(self) -> Constraint:
        base, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return independent(base, count) if count else base

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    def expand(self, batch_shape: Sequence[int]) -> Independent:
        """The same distributions, repeated to ``batch_shape``."""
        inner = self._event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *inner))
        return Independent(base, self.reinterpreted_batch_ndims, validate_args=False)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError(
                "Enumeration over cartesian product is not implemented: Independent has "
                f"{self.reinterpreted_batch_ndims} reinterpreted dimensions, needed are 0"
            )
        return self.base_dist.enumerate_support(expand)

    def _summed(self, each: Tensor) -> Tensor:
        for _ in range(self.reinterpreted_batch_ndims):
            each = each.sum(-1)
        return each

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
