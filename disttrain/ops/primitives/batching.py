"""What batch rules share: where the batch dimension goes, and numbers beside a Tensor. Knows only
primitives that rearrange.

A batch rule is ``rule(args, batch_dims, params, size) -> (out, batch_dim)``: ``args`` are Tensors
of the inner level, ``batch_dims`` says per argument where its batch dimension is (None: nowhere).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...context import SLOW, thread
from ...core.annotations import Value
from ...core.gate import Primitive
from ...core.tensor import Tensor, beside, wrap
from ...core.types.device import located
from .views import expand, front, reshape


def fronted(x: Tensor, dim: int | None, size: int) -> Any:
    """``x`` with a batch dimension in front, repeated when it had none."""
    if dim is not None:
        return front(x, dim)
    return expand(reshape(x, shape=(1, *x.shape)), shape=(size, *x.shape))


def merge(x: Tensor, first: int = 0) -> Any:
    """Dimensions ``first`` and ``first + 1`` as one."""
    shape = tuple(x.shape)
    return reshape(x, shape=(*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :]))


def split(x: Value, size: int, dim: int = 0) -> Any:
    """The inverse of ``merge``: ``size`` times the rest of dimension ``dim``."""
    shape = tuple(x.shape)
    rest = shape[dim] // size if size else 0
    return reshape(x, shape=(*shape[:dim], size, rest, *shape[dim + 1 :]))


def leading(prim_of: Callable[[], Any]) -> Callable:
    """The rule of a primitive of one argument that works alike with more leading dimensions."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        return prim_of()(front(args[0], dims[0]), *args[1:], **params), 0

    return rule


def by_rows(prim_of: Callable[[], Any]) -> Callable:
    """The batch rule of a search: one sequence takes the values of all examples; where each example
    has its own, these are rows."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        (edges, values, sorter), (by, of, ordered), search = args, dims, prim_of()
        values = fronted(values, of, size)
        if by is None and ordered is None and len(edges.meta()[0]) == 1:
            return search(edges, values, sorter, **params), 0
        edges = fronted(edges, by, size)
        sorter = None if sorter is None else fronted(sorter, ordered, size)
        shape = tuple(values.meta()[0])
        if len(edges.meta()[0]) == 2:  # the values of an example are a line
            values = reshape(values, shape=(size, math.prod(shape[1:])))
        return reshape(search(edges, values, sorter, **params), shape=shape), 0

    return rule


def made_beside(t: Tensor, make: Callable[[Any], Any]) -> Tensor:
    """A Tensor over ``make(array module)``, to be used with ``t``: made where ``t`` lies, so that
    nothing is sent there."""
    there = located(t.device) if isinstance(t, Tensor) else None
    given = None if there is None else t.__dict__.get("array")
    if there is None or not (given is None or hasattr(given, "here")):
        return beside(t, make(np))
    return wrap(there.make(make))


def made_like(x: Any, make: Callable[[Any], Any]) -> Any:
    """``make(array module)`` for operations with ``x``: an array beside arrays, else a Tensor."""
    return make(np) if isinstance(x, np.ndarray) else made_beside(x, make)


def by_kernel(name: str, forward: Callable[..., tuple], args: str) -> Primitive:
    """A fused backward without a rule of its own, for ``at_once``."""
    prim = Primitive(name, forward, tuple(args.split()))
    prim.multi = True
    return prim


def at_once(g: Any) -> bool:
    """Whether a rule on Tensors may use a fused backward: nothing records it, and the arrays lie on
    a device, where the many steps of a composed one would cost."""
    if thread.grad_enabled:
        return False
    if thread.mode == SLOW and (thread.walk is None or thread.walk.pull is None):
        return False  # (a capture records it as an operation of its own)
    return g.__dict__.get("array").__class__ is DeviceArray


def plain_on_device(t: Tensor) -> bool:
    """Whether ``t`` is an array on a device, and no transform sees what is done to it."""
    if t.__dict__.get("array").__class__ is not DeviceArray:
        return False
    return thread.mode != SLOW or all(i.dynamic for i in thread.stack)


def computed(prim: Primitive, args: tuple, **params: object) -> list:
    """The results of ``prim`` on the arrays of Tensors."""
    if thread.mode == SLOW:
        return list(prim(*args, **params))
    arrays = [a.array if isinstance(a, Tensor) else a for a in args]
    return [wrap(r) for r in prim.compute(arrays, params)]
