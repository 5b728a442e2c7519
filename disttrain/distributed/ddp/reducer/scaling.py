"""How gradients are scaled: by the number of ranks, or by the weights of their samples.

The part of the reducer that knows factors. Knows no order of buckets.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends.device.memory import Memory
from ....context import thread
from ....core.tensor import Tensor
from .messages import Messages
from .side_data import JOINED, WEIGHTED, Row
from .stores import IDLE, Scales


class Scaled:
    """Factors of gradients, by their type; and the weight of what was not yet reduced."""

    group: Any
    hook: Any
    messages: Messages
    accumulated: set[int]
    params: list[Tensor]
    house: Any
    memory: Memory
    phase: int
    lent: Any = None  # the walk whose gradients are not those in .grad

    def __init__(self, size: int) -> None:
        self.divisor, self.divide_by_initial = size, True
        self.in_join = False
        self.weight: tuple[float, float] | None = None  # of the backward to come: (weight, factor)
        self.total: float | None = None  # weight of the backwards since the last synchronised one
        self.counted: Any = None
        self.carried: dict[int, Any] = {}  # means of earlier steps, which no weight divides
        self.scales: dict[np.dtype, Scales] = {}

    def scales_of(self, kind: np.dtype) -> Scales:
        """The factors of gradients of type ``kind``."""
        if kind not in self.scales:
            with self.memory.here():
                self.scales[kind] = Scales(kind, self.memory)
        return self.scales[kind]

    def _rescale(self, total: float | None = None) -> None:
        """``total``: the weight of all ranks, where it is known before they are reduced."""
        local = 1.0 if self.weight is None else self.weight[1]
        if total is not None:
            summed = self.group.size if self.hook is not None else 1  # hooks divide by it
            common = summed / total if total else 0.0
        elif self.hook is not None or self.weight is not None:
            common = 1.0
        else:
            common = 1 / self.divisor
        with self.memory.here():
            for scales in self.scales.values():
                scales.set(local, common)

    @property
    def asks_weights(self) -> bool:
        """Whether ranks add up their weights before their gradients: what hooks reduce tells none,
        and on a device nobody waits for what is told."""
        return self.hook is not None or not self.memory.on_host

    def count_active(self, told: Sequence[int]) -> None:
        """Inside a join block: how many ranks have input in this iteration."""
        active = sum(1 for flags in told if flags)
        divisor = self.group.size if self.divide_by_initial else active
        if divisor != self.divisor:
            self.divisor = divisor
            self._rescale()

    def set_weight(self, weight: tuple[float, float] | None) -> None:
        """The weight of the losses whose backward comes next, and the factor of their gradients."""
        self.weight = weight
        self._rescale()

    def carry(self, i: int, leaf: Tensor) -> Tensor | None:
        """Before a weighted gradient is added to the one that parameter ``i`` has. One of an
        earlier step is a mean already, which no weight may divide: it makes room, and is added
        to the mean of this step in the end."""
        old = leaf._grad
        if old is None or i in self.accumulated or i in self.carried:
            return old
        raw = self.memory.raw(old.array)
        self.carried[i] = raw.copy()
        if self.memory.writeable(raw):
            raw[...] = 0
        else:
            leaf._grad = None
        return leaf._grad

    def _divide(self, rows: Sequence[Row]) -> None:
        """The gradients are sums: divide them by the weight of all ranks."""
        active = [row for row in rows if not row.flags & JOINED]
        if not all(row.flags & WEIGHTED for row in active):
            self.phase = IDLE
            self._over()
            raise self.messages.weights_missing([bool(r.flags & WEIGHTED) for r in rows])
        total = sum(row.weight for row in rows)
        if total:
            for b in range(len(self.house.buckets)):
                flat = self.house.gradients(b)
                np.multiply(flat, np.array(1 / total).astype(flat.dtype), out=flat)

    def _over(self) -> None:
        """Nothing is left of this step, however it ended."""
        self.accumulated.clear()
        self.carried.clear()
        self.total = None

    def _count_weight(self, syncing: bool) -> None:
        """This backward's weight, once for each walk."""
        walk = thread.walk
        if self.counted is not None and self.counted() is walk:
            return
        self.counted = weakref.ref(walk)
        if self.accumulated and all(self.params[i]._grad is None for i in self.accumulated):
            self._over()  # the program has dropped them
        if (self.weight is None) != (self.total is None) and (self.total or self.accumulated):
            self._over()
            raise self.messages.weights_mixed()
        if self.weight is not None:
            self.total = (self.total or 0.0) + self.weight[0]
        if syncing and self.asks_weights and (self.weight is not None or self.in_join):
            total = np.array([self.total or 0.0])
            self.group.all_reduce(total)
            if self.weight is not None:
                self._rescale(float(total[0]))
