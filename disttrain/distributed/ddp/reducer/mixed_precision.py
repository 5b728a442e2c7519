"""Native mixed precision: parameters computed with, and gradients reduced, in other types.

Between a forward and the end of its backward the module's parameters hold values of
``param_dtype``; outside they hold their full ones, and so do gradients. Knows tensors; no buckets.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....context import thread
from ....core.backward.engine import on_finish
from ....core.tensor import Tensor, wrap
from ...collectives.nested import cast
from .stores import SYNCING, VOID


@dataclass
class MixedPrecision:
    """The types of DDP's own mixed precision; None leaves things in the type that they have.

    ``param_dtype``: of parameters and floating inputs in forward and backward. ``reduce_dtype``: of
    the gradients that travel (default: ``param_dtype``). ``buffer_dtype``: of floating buffers, for
    good.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


def is_floating(t: Tensor) -> bool:
    """Whether mixed precision changes the type of ``t``."""
    return isinstance(t, Tensor) and t.dtype.is_floating_point


def cast_buffers(buffers: Iterable[Tensor], kind: np.dtype | None) -> None:
    """Give floating buffers another type, for good."""
    for b in buffers:
        if kind is not None and is_floating(b):
            memory = memory_of(b.array)
            b.array = memory.held(memory.raw(b.array).astype(kind))


class LowPrecision:
    """The parameters of one wrapper, which can be lowered and raised."""

    def __init__(self, params: Sequence[Tensor], kind: np.dtype | None) -> None:
        self.params = [p for p in params if kind is not None and is_floating(p)]
        self.kind = kind
        self.full: list[Any] = []
        self.walk: Any = None  # the backward at whose end they are raised

    def lower(self) -> None:
        """Before a forward."""
        if self.full:
            return
        self.full = [p.array for p in self.params]
        for p, full in zip(self.params, self.full, strict=True):
            memory = memory_of(full)
            self._put(p, memory.held(memory.raw(full).astype(self.kind)))

    def back_later(self) -> None:
        """At the end of the backward that is running."""
        if self.full and (self.walk is None or self.walk() is not thread.walk):
            self.walk = weakref.ref(thread.walk)
            on_finish(self.back)

    def back(self) -> None:
        """After backward, or after a forward that none follows."""
        full, self.full = self.full, []
        for p, array in zip(self.params, full, strict=False):
            self._put(p, array)

    def _put(self, p: Tensor, array: Any) -> None:
        p.array = array
        if p._node is not None:
            p._node.dtype = array.dtype

    def cast(self, values: object) -> Any:
        """``values`` (nested as they like) with floating tensors in the type of the parameters."""
        return values if self.kind is None else cast(values, self.kind)


def make_cast_store(r: Any, i: int) -> Callable[[Tensor, Any], None]:
    """The ``store`` of a parameter whose gradient travels in another type than it has itself: as
    ``stores.make_store``, but ``.grad`` is no view of the bucket."""
    slots, place = r.house.slots, r.house.place
    scaling = r.scaling
    scales = scaling.scales_of(r.metas[i].dtype)
    full = r.full_types[i]
    memory = r.house.memory

    def store(leaf: Tensor, g: object) -> None:
        array = g if isinstance(g, np.ndarray) else memory.raw(getattr(g, "array", g))
        syncing = r.phase == SYNCING or r.begin()
        if r.phase == VOID or scaling.is_void:
            array = np.zeros_like(array)
        if scaling.weight is not None:
            scaling.carry(i, leaf)
        if not syncing:
            r.low.back_later()
            scaling.accumulated.add(i)
            local = (
                array.astype(full)
                if scaling.weight is None
                else array.astype(full) * scaling.weight[1]
            )
            if leaf._grad is not None:
                local = memory.raw(leaf._grad.array) + local
            leaf._grad = wrap(memory.held(local))
            return
        if r.fired[i]:
            r.again(i, array)
            return
        r.fired[i] = 1
        if leaf._grad is not None:  # (old + g * local) * common, as one gradient
            old = memory.raw(leaf._grad.array).astype(full)
            array = (old / scales.local.astype(full) if scaling.weight is not None else old) + array
        slots[i][...] = array.astype(full) * scales.fresh.astype(full)
        if r.arrivals is not None:
            r.arrivals.append(i)
        if r.expected is None or r.expected[i] == 1:
            b = place[i]
            r.left[b] -= 1
            if not r.left[b] and b == r.next:
                r.launch()

    return store
