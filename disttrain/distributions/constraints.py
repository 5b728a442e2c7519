"""The sets that parameters and values of distributions have to be in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types.dtypes import bool as bool_type
from ..core.types.dtypes import finfo
from ..errors import ShapeError
from ..linalg import cholesky_ex, eigvalsh
from ..ops.api import cat as join
from ..ops.api import full, isclose
from ..ops.api import stack as pile
from .parameters import all_true

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval",
    "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector",
    "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values. ``is_discrete``: of numbers apart from each other; ``event_dim``: how many
    of the last dimensions are one value."""

    is_discrete: bool = False
    event_dim: int = 0

    def check(self, value: Tensor) -> Tensor:
        """Which values are in the set: bool, ``value``'s shape without the event's dimensions."""
        raise NotImplementedError(f"{type(self).__name__}.check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({self._bounds()})"

    def _bounds(self) -> str:
        """What the representation shows between parentheses."""
        return ""


class _Dependent(Constraint):
    """A set that depends on parameters of a distribution, and is known of its instances only.
    ``is_discrete``, ``event_dim``: where these are known of the class."""

    def __init__(self, *, is_discrete: Any = None, event_dim: Any = None) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self._known("is_discrete")

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self._known("event_dim")

    def _known(self, name: str) -> Any:
        value = vars(self)[f"_{name}"]
        if value is None:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete: Any = None, event_dim: Any = None) -> _Dependent:
        """The same, with more said."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is None else is_discrete,
            event_dim=self._event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property whose value is a constraint, of an instance; of the class, a dependent one. As a
    decorator: ``@dependent_property``, or with ``(is_discrete=..., event_dim=...)``."""

    def __init__(
        self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = None,
        event_dim: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether the set is known of instances only."""
    return isinstance(constraint, _Dependent)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # False for NaN only


class _Bounded(Constraint):
    """Between two bounds."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def _bounds(self) -> str:
        return f"lower_bound={self.lower_bound}, upper_bound={self.upper_bound}"


class _Interval(_Bounded):
    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Bounded):
    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Bounded):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _Above(Constraint):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def _bounds(self) -> str:
        return f"lower_bound={self.lower_bound}"


class _GreaterThan(_Above):
    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound <= value


class _IntegerGreaterThan(_Above):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _LessThan(Constraint):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound

    def _bounds(self) -> str:
        return f"upper_bound={self.upper_bound}"


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Multinomial(Constraint):
    """Numbers of occurrences, at most ``upper_bound`` together."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _all_last(value == value.tril(), 2)


class _LowerCholesky(Constraint):
    """Lower triangular with a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)
        return _all_last(value == value.tril(), 2) & (diagonal > 0).all(-1)


class _CorrCholesky(Constraint):
    """Factors of correlation matrices: Cholesky factors whose rows are of length 1."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        near = float(finfo(value.dtype).eps) * value.shape[-1] * 10
        rows = (value * value).sum(-1).sqrt()
        return lower_cholesky.check(value) & ((rows - 1).abs() <= near).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return full(tuple(value.shape[:-2]), is_square, dtype=bool_type, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        good = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return good
        return _all_last(isclose(value, value.mT, atol=1e-6), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        good = super().check(value)
        return good & (eigvalsh(value) >= 0).all(-1) if all_true(good) else good


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        good = super().check(value)
        return cholesky_ex(value).info == 0 if all_true(good) else good


class _IndependentConstraint(Constraint):
    """``base_constraint`` on each number of the last ``reinterpreted_batch_ndims`` dimensions."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        good = self.base_constraint.check(value)
        if good.dim() < self.reinterpreted_batch_ndims:
            needed = self.base_constraint.event_dim + self.reinterpreted_batch_ndims
            raise ShapeError(f"Expected value.dim() >= {needed} but got {value.dim()}")
        return _all_last(good, self.reinterpreted_batch_ndims)

    def _bounds(self) -> str:
        return f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"


class MixtureSameFamilyConstraint(Constraint):
    """What ``base_constraint`` allows in every component of a mixture."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ShapeError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        good = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_last(good, good.dim() - (value.dim() - self.event_dim))

    def _bounds(self) -> str:
        return repr(self.base_constraint)


class _Joined(Constraint):
    """Constraints ``cseq`` on parts along ``dim``."""

    def __init__(self, cseq: Sequence[Constraint], dim: int) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)


class _Cat(_Joined):
    """The parts have ``lengths``, 1 each unless given."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"{len(self.cseq)} constraints need {len(self.cseq)} lengths")

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is none of a value of {value.dim()} dimensions")
        parts = value.split(self.lengths, self.dim)
        return join([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Joined):
    """One part for each."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        most = max(c.event_dim for c in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Tensor) -> Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is none of a value of {value.dim()} dimensions")
        parts = value.unbind(self.dim)
        return pile([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)


def _all_last(good: Tensor, count: int) -> Tensor:
    """``all`` over the last ``count`` dimensions."""
    for _ in range(count):
        good = good.all(-1)
    return good


dependent, dependent_property = _Dependent(), _DependentProperty
boolean, real, simplex, one_hot = _Boolean(), _Real(), _Simplex(), _OneHot()
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
independent, multinomial, cat, stack = _IndependentConstraint, _Multinomial, _Cat, _Stack
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
real_vector = independent(real, 1)
lower_triangular, lower_cholesky = _LowerTriangular(), _LowerCholesky()
corr_cholesky, square, symmetric = _CorrCholesky(), _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
