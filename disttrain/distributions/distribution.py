"""What all distributions have in common. Knows shapes; the rest is each one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..ops.api import exp, sqrt
from ..trace import warn
from .constraints import Constraint, is_dependent
from .parameters import all_true, lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A batch of distributions over values of one shape.

    ``batch_shape``: how many, independent of each other; ``event_shape``: of one value. Samples are
    [*sample_shape, *batch_shape, *event_shape], and a log-probability is
    [*sample_shape, *batch_shape]. Parameters are checked when it is made, values when their
    probability is asked for, unless ``validate_args=False``: ``ValueError``.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = True
    _stored: ClassVar[Mapping[str, int]] = {}  # attributes beside parameters -> dimensions of one
    _kept: ClassVar[tuple[str, ...]] = ()  # attributes that do not depend on the batch
    _inner: ClassVar[tuple[str, ...]] = ()  # distributions of the same batch, with the parameters

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where nothing else is said."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args({value!r}): needed True or False")
        Distribution._validate_args = value

    @property
    def arg_constraints(self) -> Any:
        """The set that each parameter is in, by name."""
        raise NotImplementedError(f"{type(self).__name__}.arg_constraints")

    @property
    def batch_shape(self) -> Size:
        """How many distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """The values that samples can have."""
        raise NotImplementedError(f"{type(self).__name__}.support")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The mean square of the distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values without a gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values that the parameters get gradients through."""
        raise NotImplementedError(f"{type(self).__name__}.rsample: has_rsample is False")

    def sample_n(self, n: int) -> Tensor:
        """``sample((n,))``"""
        warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability, or its density, at ``value``."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value not above ``value``."""
        raise NotImplementedError(f"{type(self).__name__}.cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value that is not exceeded with probability ``value``."""
        raise NotImplementedError(f"{type(self).__name__}.icdf")

    def entropy(self) -> Tensor:
        """In nats, [*batch_shape]."""
        raise NotImplementedError(f"{type(self).__name__}.entropy")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values there are, along the first dimension; ``expand``: of every distribution of the
        batch."""
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support")

    def perplexity(self) -> Tensor:
        """e to the power of the entropy."""
        return exp(self.entropy())

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated to ``batch_shape``. A subclass with an ``__init__`` of
        its own gives one that it has made as ``_instance``."""
        new, shape = self._get_checked_instance(Distribution, _instance), Size(batch_shape)
        self._expand_into(new, shape)
        Distribution.__init__(new, shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_into(self, new: Distribution, shape: Size) -> None:
        """Parameters of ``new``: these, repeated."""
        given = {name: c.event_dim for name, c in self.arg_constraints.items()}
        given.update(self._stored)
        for name, dims in given.items():
            value = vars(self).get(name)
            if value is not None:
                own = value.shape[value.dim() - dims :]
                setattr(new, name, value.expand((*shape, *own)))
        for name in self._kept:
            setattr(new, name, vars(self)[name])
        for name in self._inner:
            setattr(new, name, vars(self)[name].expand(shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """``_instance``, or a new one whose ``__init__`` is skipped; NotImplementedError where that
        is not known to be enough."""
        kinds = type(self).__mro__
        home = next(k for k in kinds if "__init__" in vars(k))
        if _instance is None and home is not cls and not _is_own(home):
            known = next(k for k in kinds if _is_own(k))
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {known.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        """The shape of samples."""
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _constraints(self) -> Mapping[str, Constraint]:
        try:
            return self.arg_constraints
        except NotImplementedError:
            warn(
                f"{type(self)} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with `validate_args=False` "
                "to turn off validation."
            )
            return {}

    def _check_parameters(self) -> None:
        for name, constraint in self._constraints().items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if is_dependent(constraint) or (lazy and name not in vars(self)):
                continue
            value = getattr(self, name)
            if not all_true(constraint.check(value)):
                raise ValueError(
                    f"Expected parameter {name} ({_kind(value)}) of distribution {self!r} to "
                    f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def _validate_sample(self, value: Tensor) -> None:
        """Refuse a value that is no tensor, of another shape, or outside of the support."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError(
                f"The value argument to log_prob must be a Tensor, not {type(value).__name__}"
            )
        self._validate_shape(value)
        try:
            support = self.support
        except NotImplementedError:
            warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation."
            )
            return
        if not all_true(support.check(value)):
            raise ValueError(
                f"Expected value argument ({_kind(value)}) to be within the support ({support!r}) "
                f"of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _validate_shape(self, value: Tensor) -> None:
        last = len(value.shape) - len(self._event_shape)
        if tuple(value.shape[last:]) != tuple(self._event_shape) or last < 0:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs "
                f"{self._event_shape}."
            )
        wanted = (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(value.shape), reversed(wanted), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{value.shape} vs {Size(wanted)}."
                )

    def __repr__(self) -> str:
        own = {k: vars(self)[k] for k in self.arg_constraints if k in vars(self)}
        shown = (f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in own.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _kind(value: Tensor) -> str:
    return f"{type(value).__name__} of shape {tuple(value.shape)}"


def _is_own(kind: type) -> bool:
    return kind.__module__.rpartition(".")[0] == __name__.rpartition(".")[0]
