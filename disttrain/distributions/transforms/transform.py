"""Maps of values with known Jacobians, by which distributions are made from others: the class, its
inverse, and the ways to put several together."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ...core.tensor import Size, Tensor
from ...ops.api import zeros_like
from .. import constraints
from ..constraints import Constraint
from ..parameters import lazy_property, sum_rightmost


class Transform:
    """A differentiable map ``y = t(x)`` from ``domain`` to ``codomain``, with ``t.inv`` back.

    A subclass gives ``_call``, ``_inverse`` and ``log_abs_det_jacobian``. ``cache_size=1``: the
    last pair of x and y is kept, so that ``t.inv(t(x))`` is x itself, exact and for nothing, where
    x is the same object. ``bijective``: whether ``t(t.inv(y)) == y`` and the other way round.
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_inv": None}  # a weak reference is not pickled

    @property
    def event_dim(self) -> int:
        """How many dimensions one value has, on both sides."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse, whose own inverse is this transform."""
        known = None if self._inv is None else self._inv()
        if known is None:
            known = _InverseTransform(self)
            self._inv = weakref.ref(known)
        return known

    @property
    def sign(self) -> Any:
        """Of the derivative, of monotonic maps of numbers: 1 or -1."""
        raise NotImplementedError(f"{type(self).__name__}.sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with a cache of that size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        """y for x."""
        if self._cache_size == 0:
            return self._call(x)
        known_x, known_y = self._cached_x_y
        if x is known_x:
            return known_y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        known_x, known_y = self._cached_x_y
        if y is known_y:
            return known_x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|, of one value."""
        raise NotImplementedError(f"{type(self).__name__}.log_abs_det_jacobian")

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of y for x of ``shape``."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """The shape of x for y of ``shape``."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """``transform`` the other way round."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._forward = transform

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self._forward.codomain

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return self._forward.domain

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return self._forward.bijective

    @property
    def sign(self) -> Any:
        return self._forward.sign

    @property
    def inv(self) -> Transform:
        return self._forward

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._forward.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._forward == other._forward

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        return self._forward._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._forward.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._forward!r})"


class ComposeTransform(Transform):
    """``parts`` one after the other. One that takes numbers is applied to each number of values of
    more dimensions."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        dims = self.parts[-1].codomain.event_dim if self.parts else 0
        for part in reversed(self.parts):
            dims = max(dims + _gained(part), part.domain.event_dim)
        return _of_dims(self.parts[0].domain, dims) if self.parts else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        dims = self.parts[0].domain.event_dim if self.parts else 0
        for part in self.parts:
            dims = max(dims - _gained(part), part.codomain.event_dim)
        return _of_dims(self.parts[-1].codomain, dims) if self.parts else constraints.real

    @lazy_property
    def bijective(self) -> bool:
        """Whether all parts are."""
        return all(p.bijective for p in self.parts)

    @lazy_property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        known = None if self._inv is None else self._inv()
        if known is None:
            known = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv, known._inv = weakref.ref(known), weakref.ref(self)
        return known

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        between = [x]
        for part in self.parts[:-1]:
            between.append(part(between[-1]))
        dims, total = self.domain.event_dim, None
        for part, before, after in zip(self.parts, between, [*between[1:], y], strict=True):
            term = part.log_abs_det_jacobian(before, after)
            term = sum_rightmost(term, dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims -= _gained(part)
        assert total is not None
        return total

    def forward_shape(self, shape: Sequence[int]) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


def _gained(part: Transform) -> int:
    """How many dimensions more a value has before ``part`` than after it."""
    return part.domain.event_dim - part.codomain.event_dim


def _of_dims(constraint: Constraint, dims: int) -> Constraint:
    """``constraint`` on values of that many dimensions."""
    more = dims - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


class IndependentTransform(Transform):
    """``base_transform`` with ``reinterpreted_batch_ndims`` more dimensions for one value."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        needs_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        needs_dims(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(each, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def needs_dims(shape: Sequence[int], dims: int) -> None:
    """Refuse a shape of fewer dimensions."""
    if len(shape) < dims:
        raise ValueError(f"Too few dimensions on input: {len(shape)} given, {dims} needed")


class ReshapeTransform(Transform):
    """Values of ``in_shape`` as values of ``out_shape``, which have as many numbers."""

    bijective = True

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                "in_shape, out_shape have different numbers of elements: "
                f"{self.in_shape}, {self.out_shape}"
            )
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape((*self._batch(x, self.in_shape), *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape((*self._batch(y, self.out_shape), *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(tuple(self._batch(x, self.in_shape)))

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._turned(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._turned(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _batch(value: Tensor, own: Sequence[int]) -> Sequence[int]:
        return value.shape[: value.dim() - len(own)]

    @staticmethod
    def _turned(shape: Sequence[int], wanted: Size, given: Size) -> tuple:
        needs_dims(shape, len(wanted))
        cut = len(shape) - len(wanted)
        if tuple(shape[cut:]) != tuple(wanted):
            raise ValueError(f"Shape mismatch: expected {wanted} but got {tuple(shape[cut:])}")
        return (*shape[:cut], *given)


identity_transform = ComposeTransform([])
identity_transform.__doc__ = "Leaves values as they are."
