"""The sets that parameters and values of distributions have to be in."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..errors import ShapeError

__all__ = [
    "Constraint", "boolean", "greater_than", "greater_than_eq", "half_open_interval",
    "independent", "integer_interval", "interval", "less_than", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_integer", "real", "real_vector",
    "simplex", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values. ``is_discrete``: of numbers apart from each other; ``event_dim``: how many
    of the last dimensions are one value."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Which values are in the set: bool, ``value``'s shape without the event's dimensions."""
        raise NotImplementedError(f"{type(self).__name__}.check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({self._bounds()})"

    def _bounds(self) -> str:
        return ", ".join(f"{name}={bound}" for name, bound in vars(self).items())


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # False for NaN only


class _Bounded(Constraint):
    """Between two bounds, either of which a subclass may leave out."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


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


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _IndependentConstraint(Constraint):
    """``base_constraint`` on each number of the last ``reinterpreted_batch_ndims`` dimensions."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ShapeError(
                f"Expected value.dim() >= {self.event_dim} but got {value.dim()}: "
                f"{self!r} needs a value of at least that many dimensions"
            )
        good = self.base_constraint.check(value)
        return last_dims_all(good, self.reinterpreted_batch_ndims)

    def _bounds(self) -> str:
        return f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"


def last_dims_all(good: Tensor, count: int) -> Tensor:
    """``all`` over the last ``count`` dimensions."""
    for _ in range(count):
        good = good.all(-1)
    return good


boolean, real, simplex, one_hot = _Boolean(), _Real(), _Simplex(), _OneHot()
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
independent = _IndependentConstraint
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
real_vector = independent(real, 1)
