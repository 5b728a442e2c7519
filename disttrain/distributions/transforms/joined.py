"""Transforms of parts along a dimension, put together like ``cat`` and ``stack``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.tensor import Tensor
from ...ops.api import cat, stack
from .. import constraints
from ..constraints import Constraint
from ..parameters import lazy_property, sum_rightmost
from .transform import Transform


class _Joined(Transform):
    """``tseq``: a transform for each part along ``dim``."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        tseq = [t.with_cache(cache_size) for t in tseq] if cache_size else tseq
        super().__init__(cache_size=cache_size)
        self.transforms, self.dim = list(tseq), dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _has_dim(self, value: Tensor) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is none of a value of {value.dim()} dimensions")


class CatTransform(_Joined):
    """``tseq`` on parts of ``lengths`` along ``dim`` (1 each unless given), like ``cat``."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.transforms)} transforms need as many lengths")

    @lazy_property
    def event_dim(self) -> int:  # type: ignore[override]
        """Of the part with the most."""
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        """Along ``dim``, of all parts together."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        self._has_dim(value)
        if value.shape[self.dim] != self.length:
            raise AssertionError(f"size {value.shape[self.dim]} given, {self.length} needed")
        return value.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        parts = zip(self.transforms, self._parts(x), strict=True)
        return cat([t(part) for t, part in parts], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._parts(y), strict=True)
        return cat([t.inv(part) for t, part in parts], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = []
        for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True):
            term = t.log_abs_det_jacobian(a, b)
            terms.append(sum_rightmost(term, self.event_dim - t.event_dim))
        dim = (self.dim if self.dim < 0 else self.dim - x.dim()) + self.event_dim
        if dim < 0:  # (counted from the end of what is left)
            return cat(terms, dim)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """``tseq`` on the slices along ``dim``, like ``stack``."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _each(self, do: Callable[..., Tensor], *values: Tensor) -> Tensor:
        for value in values:
            self._has_dim(value)
            if value.shape[self.dim] != len(self.transforms):
                raise AssertionError(
                    f"size {value.shape[self.dim]} given, {len(self.transforms)} needed"
                )
        slices = zip(*(v.unbind(self.dim) for v in values), strict=True)
        done = [do(t, *s) for t, s in zip(self.transforms, slices, strict=True)]
        return stack(done, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return self._each(lambda t, a: t(a), x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._each(lambda t, b: t.inv(b), y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self._each(lambda t, a, b: t.log_abs_det_jacobian(a, b), x, y)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
