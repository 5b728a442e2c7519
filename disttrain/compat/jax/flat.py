"""Functions of pytrees of Arrays as functions of lists of Tensors, which all transforms take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from . import tree
from .array import Array, kind_of, unwrap, wrap

float0 = np.dtype([("float0", "V")])
_registry = tree.default_registry
_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


def as_array(
    value: Any, what: str = "Argument {value!r} of type {kind} is not a valid JAX type"
) -> Array:
    """A leaf as an Array."""
    if isinstance(value, Array):
        return value
    if hasattr(value, "__jax_array__"):
        return as_array(value.__jax_array__())
    known = isinstance(value, (bool, int, float, complex, np.generic))
    if known or (isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"):
        return wrap(unwrap(value), kind_of(value)[1])
    if isinstance(value, Tensor):
        return wrap(value)
    raise TypeError(what.format(value=value, kind=type(value)))


def is_float0(value: Any) -> bool:
    """Whether it is a cotangent or tangent of an integer: nothing."""
    return getattr(value, "dtype", None) == float0


def no_tangent(like: Any) -> np.ndarray:
    """The tangent of an integer."""
    return np.zeros(like.shape, float0)


def moves(array: Array) -> bool:
    """Whether its type has derivatives."""
    return array.dtype.kind in "fcV"


class Flat:
    """``fun`` as a function of a list of Tensors, which gives a list of Tensors. After a call:
    ``form``, the form of its result; ``weak``, which of its leaves have weak types; ``aux``."""

    def __init__(
        self, fun: Callable, args: tuple, kwargs: dict | None = None, has_aux: bool = False
    ) -> None:
        self.fun, self.has_aux = fun, has_aux
        leaves, self.of = _registry.flatten((args, kwargs or {}))
        self.given = [as_array(x) for x in leaves]
        self.tensors = [a._value for a in self.given]
        self.form: Any = None
        self.weak: list[bool] = []
        self.aux: Any = None

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        arrays = [wrap(t, a.weak_type) for t, a in zip(tensors, self.given, strict=True)]
        args, kwargs = self.of.build(iter(arrays))
        result = self.fun(*args, **kwargs)
        extra: list = []
        if self.has_aux:
            result, aux = _split_aux(result)
            extra, self.aux_form = _registry.flatten(aux)
        leaves, self.form = _registry.flatten(result)
        outs = [as_array(x) for x in leaves]
        self.weak = [o.weak_type for o in outs]
        self.aux_leaves = extra
        return [o._value for o in outs]

    def tree(self, tensors: Sequence[Tensor]) -> Any:
        """The result of these tensors."""
        pairs = zip(tensors, self.weak, strict=True)
        return self.form.build(iter([wrap(t, w) for t, w in pairs]))

    def with_aux(self, tensors: list) -> tuple[list, list]:
        """Outputs, and those of the aux leaves that are Arrays (for the transform to take out)."""
        return tensors, [x._value for x in self.aux_leaves if isinstance(x, Array)]

    def aux_of(self, tensors: Sequence[Tensor]) -> Any:
        """The aux tree, with these tensors in place of its Arrays."""
        left = iter(tensors)
        return self.aux_form.build(
            iter(
                [
                    wrap(next(left), x.weak_type) if isinstance(x, Array) else x
                    for x in self.aux_leaves
                ]
            )
        )


def _split_aux(result: Any) -> tuple:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            "expected function with aux output to return a two-element tuple, but got type "
            f"{type(result)} with value {result}"
        )
    return tuple(result)


def check_callable(fun: Any) -> None:
    """Raise ``TypeError`` unless it can be called."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")


def named(wrapper: Callable, fun: Any) -> Any:
    """``wrapper`` with the name and the signature of ``fun``."""
    try:
        return functools.wraps(fun)(wrapper)
    except (AttributeError, TypeError):
        return wrapper


def name_of(fun: Any) -> str:
    """A function's name and place, for messages."""
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__name__", repr(fun))
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code else name
