"""Functions of trees as functions of lists of tensors, which all transforms take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.gate import Tracer
from ...core.tensor import Tensor
from ...core.types import dtypes
from ..staging import StagedTracer
from ..structured_bodies import Aval, Border, aval
from ..vmap import BatchTracer


def moves(kind: np.dtype) -> bool:
    """Whether values of that type have derivatives."""
    return kind.kind in "fcV" and kind != dtypes.key.np


def tangent_of(border: Border, t: Tensor, weak: bool, tangent: Any) -> Any:
    """``tangent`` as a leaf beside that of ``t``: nothing, where its type does not move."""
    shape, kind = t.meta()
    return border.give(tangent, weak) if moves(kind) else border.nothing(tuple(shape))


def is_traced(value: Tensor) -> bool:
    """Whether it has no numbers that Python may read."""
    while isinstance(value, Tracer):
        if isinstance(value, StagedTracer):
            return True
        if isinstance(value, BatchTracer) and value.bdim is not None:
            return True
        value = value.inner
    return False


class Flat:
    """``fun`` as a function of a list of tensors, which gives a list of tensors. After a call:
    ``form``, the form of its result; ``weak``, which of its leaves have weak types."""

    def __init__(
        self, border: Border, fun: Callable, args: tuple, kwargs: dict | None = None,
        has_aux: bool = False,
    ) -> None:  # fmt: skip
        self.border, self.fun, self.has_aux = border, fun, has_aux
        leaves, self.of = border.registry.flatten((args, kwargs or {}))
        taken = [border.take(x) for x in leaves]
        self.tensors = [t for t, _ in taken]
        self.avals: list[Aval] = [aval(t, weak) for t, weak in taken]
        self.places = [i for i, a in enumerate(self.avals) if moves(a.dtype)]
        self.form: Any = None
        self.weak: list[bool] = []

    @property
    def args(self) -> Any:
        """The form of the arguments by place."""
        return self.of.parts[0]

    def moving(self) -> list[Tensor]:
        """The arguments that have derivatives."""
        return [self.tensors[i] for i in self.places]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        give = self.border.give
        given = [give(t, a.weak) for t, a in zip(tensors, self.avals, strict=True)]
        args, kwargs = self.of.build(iter(given))
        result = self.fun(*args, **kwargs)
        self.aux = Taken(self.border)
        if self.has_aux:
            result, aux = _split_aux(result)
            self.aux.values(aux)
        leaves, self.form = self.border.registry.flatten(result)
        outs = [self.border.take(x) for x in leaves]
        self.weak = [weak for _, weak in outs]
        return [t for t, _ in outs]

    def at(self, moving: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Results, and tensors beside them, with these for the arguments that move."""
        outs = self(*placed(self.tensors, self.places, moving))
        return outs, self.aux.tensors

    def tree(self, tensors: Sequence[Tensor]) -> Any:
        """The result of these tensors."""
        pairs = zip(tensors, self.weak, strict=True)
        return self.form.build(iter([self.border.give(t, w) for t, w in pairs]))

    def tangents(self, outs: Sequence[Tensor], moved: Sequence[Any]) -> Any:
        """The tree of tangents of results; nothing for integers."""
        rows = zip(outs, self.weak, moved, strict=True)
        return self.form.build(iter([tangent_of(self.border, o, w, t) for o, w, t in rows]))


class Taken:
    """A tree of which the leaves that stand for tensors are taken out."""

    def __init__(self, border: Border) -> None:
        self.border = border
        self.leaves: list = []
        self.tensors: list[Tensor] = []

    def values(self, tree: Any) -> list[Tensor]:
        """Their tensors."""
        self.leaves, self.form = self.border.registry.flatten(tree)
        found = [self.border.take(x)[0] for x in self.leaves if isinstance(x, self.border.kind)]
        self.tensors = found
        return found

    def tree(self, tensors: Sequence[Tensor]) -> Any:
        """The tree with these tensors."""
        left, border = iter(tensors), self.border
        made = [
            border.give(next(left), border.take(x)[1]) if isinstance(x, border.kind) else x
            for x in self.leaves
        ]
        return self.form.build(iter(made))


def placed(whole: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list:
    """``whole`` with these values at these places."""
    full = list(whole)
    for i, v in zip(places, values, strict=True):
        full[i] = v
    return full


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


def numbers(argnums: Any) -> tuple[int, ...]:
    """Places of arguments, given as one or as several."""
    if isinstance(argnums, (tuple, list)):
        if not argnums:
            raise ValueError("max() arg is an empty sequence")
        return tuple(int(n.__index__()) for n in argnums)
    if not hasattr(argnums, "__index__"):
        raise TypeError(f"'{type(argnums).__name__}' object cannot be interpreted as an integer")
    return (argnums.__index__(),)


def picked(fun: Callable, argnums: Any, args: tuple, kwargs: dict) -> tuple[tuple, Callable]:
    """The arguments ``argnums``, and ``fun`` as a function of those alone."""
    chosen = numbers(argnums)
    needed = max(max(chosen) + 1, -min(chosen))
    if needed > len(args):
        raise TypeError(
            f"differentiating with respect to argnums={argnums} requires at least {needed} "
            f"positional arguments to be passed by the caller, but got only {len(args)} positional "
            "arguments."
        )
    places = [n % len(args) for n in chosen]

    def of(*values: Any) -> Any:
        return fun(*placed(args, places, values), **kwargs)

    return tuple(args[n] for n in places), named(of, fun)


__all__ = ["Flat", "Taken", "check_callable", "is_traced", "moves", "name_of", "named", "numbers",
           "picked", "placed", "tangent_of"]  # fmt: skip
