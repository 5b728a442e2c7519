"""A call as data: the structure of its arguments, what tensors are in it, what makes its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ... import tree
from ...context import thread
from ...core.node import AccumulateGrad
from ...core.tensor import Tensor
from ...core.types.dtypes import get_default_dtype
from ..memory import owner_of, pattern
from .kinds import PLAIN, is_constant

_BYTES = 1 << 12  # of a numpy array that is part of a key


class Unknown(Exception):
    """An argument that no key can stand for."""


class Call:
    """``key`` is equal for calls that a capture may stand for, as far as arguments go.

    ``tensors``: all tensors among the arguments, in order, and ``owners`` of the memory that they
    lie in; ``objects``: what is known by identity.
    ``parts`` is the key as a flat list, for explanations; ``numbers``: plain ints and floats in
    tuples, lists and dicts of Python's, by their places in it, in the order of ``with_numbers``.
    """

    __slots__ = ("key", "numbers", "objects", "owners", "parts", "tensors")

    def __init__(self, args: tuple, kwargs: dict) -> None:
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        self.numbers: dict[int, float] = {}
        device = thread.rank.slots.get("default_device")
        casts = thread.autocast
        around = thread.mode if casts is None else (thread.grad_enabled, casts.kind, casts.dtype)
        parts: list[Any] = [around, thread.inference, get_default_dtype(), device, len(args)]
        for a in args:
            if isinstance(a, Tensor):
                self._tensor(a, parts)
            else:
                self._part(a, parts)
        if kwargs:
            self._part(kwargs, parts)
        self.owners = owners = [
            id(a) if (a := t.array).__class__ is np.ndarray and a.base is None else owner_of(a)
            for t in self.tensors
        ]
        if len(owners) > 1 and len(set(owners)) < len(owners):
            parts.append(("overlaps", *pattern(self.tensors, owners)))
        self.key = self.parts = tuple(parts)

    def without(self, numbers: Iterable[int]) -> tuple:
        """The key for all values of these plain numbers, which are known by their order."""
        parts, places = list(self.parts), list(self.numbers)
        for k in numbers:
            parts[places[k]] = None
        return tuple(parts)

    def _tensor(self, t: Any, parts: list) -> None:
        """Of a sparse one its values are the tensor, and its places are known by identity."""
        if t._composes is not None:
            parts += (type(t), t.layout, tuple(t.shape), t.__dict__.get("_unique"))
            for places in t.places():
                self._other(places, parts, True)
            t = t._held
        parts.append(_meta(t))
        self.tensors.append(t)

    def _part(self, x: Any, parts: list) -> None:
        kind = type(x)
        if isinstance(x, Tensor):
            self._tensor(x, parts)
        elif kind in (tuple, list):
            parts += (kind, len(x))
            for v in x:
                self._part(v, parts)
        elif kind is dict:
            parts += (kind, len(x))
            for k, v in x.items():
                self._apart(k, parts)
                self._part(v, parts)
        elif kind in (int, float):
            self.numbers[len(parts) + 1] = x
            parts += (kind, x if kind is int else repr(x))
        elif kind is complex:
            parts += (kind, repr(x))
        elif kind in PLAIN:
            parts += (kind, x)
        elif isinstance(x, (np.ndarray, np.generic)):
            if x.nbytes > _BYTES or x.dtype.hasobject:
                raise Unknown(f"it is given a numpy array of {x.nbytes} bytes; pass a tensor")
            parts += (kind, x.shape, x.dtype.str, x.tobytes())
        else:
            self._other(x, parts)

    def _apart(self, x: object, parts: list) -> None:
        """A part whose numbers stay what they are."""
        numbers, self.numbers = self.numbers, {}
        self._part(x, parts)
        self.numbers = numbers

    def _other(self, x: object, parts: list, whole: bool = False) -> None:
        inside = [] if whole or is_constant(x) else tree.leaves(x)
        if inside and not (len(inside) == 1 and inside[0] is x):  # a container of another kind
            parts += (type(x), len(inside), *(x if isinstance(x, dict) else ()))
            for v in inside:
                self._apart(v, parts)
            return
        self.objects.append(x)
        parts += (type(x), id(x))


def with_numbers(x: Any, number: Callable[[float], Any]) -> Any:
    """``x`` with ``number(n)`` in place of each plain int and float in it."""
    kind = type(x)
    if kind in (tuple, list):
        return kind([with_numbers(v, number) for v in x])
    if kind is dict:
        return {k: with_numbers(v, number) for k, v in x.items()}
    return number(x) if kind in (int, float) else x


def _meta(t: Tensor) -> tuple:
    array, node = t.array, t.graph_node()
    if node is None:
        graph: Any = None
    elif node.__class__ is AccumulateGrad:
        graph = "leaf" if t._grad is None else "leaf with a gradient"
        if node.accumulate_hooks or node.tensor_hooks or node.store is not None:
            graph += " and hooks"
    else:
        graph = "requires grad"
    if array.__class__ is np.ndarray:
        return array.shape, array.dtype, array.strides, t.__class__, graph
    lies = array.place, array.strides, array.where()
    return array.shape, array.dtype, lies, t.__class__, graph
