"""How gradients are scaled: by the number of ranks, or by the weights of their samples.

The part of the reducer that knows factors. Knows no buckets.
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
from .stores import Scales


class Scaling:
    """Factors of gradients, by their type; and the weight of what was not yet reduced.

    ``by_hook``: a program's hook reduces the buckets. ``accumulated``: parameters with gradients of
    backwards that were not synchronised.
    """

    def __init__(
        self, params: Sequence[Tensor], group: Any, memory: Memory, messages: Messages
    ) -> None:
        self.params, self.group = params, group
        self.memory, self.messages = memory, messages
        self.by_hook = False
        self.divisor, self.divide_by_initial = group.size, True
        self.in_join = False
        self.weight: tuple[float, float] | None = None  # of the backward to come: (weight, factor)
        self.total: float | None = None  # weight of the backwards since the last synchronised one
        self.accumulated: set[int] = set()
        self.counted: Any = None
        self.carried: dict[int, Any] = {}  # means of earlier steps, which no weight divides
        self.scales: dict[np.dtype, Scales] = {}

    def move(self, group: Any) -> None:
        """Scale for the ranks of ``group`` from now on."""
        self.group, self.divisor = group, group.size
        self.rescale()

    def leave_to_hook(self) -> None:
        """What is summed is what a hook makes of it."""
        self.by_hook = True
        self.rescale()

    def scales_of(self, kind: np.dtype) -> Scales:
        """The factors of gradients of type ``kind``."""
        if kind not in self.scales:
            with self.memory.here():
                self.scales[kind] = Scales(kind, self.memory)
        return self.scales[kind]

    def rescale(self, total: float | None = None) -> None:
        """The factors for what is to come. ``total``: the weight of all ranks, where it is known
        before they are reduced."""
        local = 1.0 if self.weight is None else self.weight[1]
        if total is not None:
            summed = self.group.size if self.by_hook else 1  # hooks divide by it
            common = summed / total if total else 0.0
        elif self.by_hook or self.weight is not None:
            common = 1.0
        else:
            common = 1 / self.divisor
        with self.memory.here():
            for scales in self.scales.values():
                scales.set(local, common)

    @property
    def is_void(self) -> bool:
        """Whether the backward to come counts for nothing."""
        return self.weight is not None and not self.weight[0]

    @property
    def asks_weights(self) -> bool:
        """Whether ranks add up their weights before their gradients: what hooks reduce tells none,
        and on a device nobody waits for what is told."""
        return self.by_hook or not self.memory.on_host

    def count_active(self, told: Sequence[int]) -> None:
        """Inside a join block: how many ranks have input in this iteration."""
        active = sum(1 for flags in told if flags)
        divisor = self.group.size if self.divide_by_initial else active
        if divisor != self.divisor:
            self.divisor = divisor
            self.rescale()

    def set_weight(self, weight: tuple[float, float] | None) -> None:
        """The weight of the losses whose backward comes next, and the factor of their gradients."""
        self.weight = weight
        self.rescale()

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

    def divide(self, rows: Sequence[Row], gradients: Sequence[np.ndarray]) -> None:
        """The gradients are sums: divide them by the weight of all ranks. Raises where some ranks
        have said none."""
        active = [row for row in rows if not row.flags & JOINED]
        if not all(row.flags & WEIGHTED for row in active):
            self.end()
            raise self.messages.weights_missing([bool(r.flags & WEIGHTED) for r in rows])
        total = sum(row.weight for row in rows)
        for flat in gradients if total else ():
            np.multiply(flat, np.array(1 / total).astype(flat.dtype), out=flat)

    def end(self) -> None:
        """Nothing is left of this step, however it ended."""
        self.accumulated.clear()
        self.carried.clear()
        self.total = None

    def count_weight(self, syncing: bool) -> None:
        """A gradient has come: this backward's weight, once for each walk."""
        if self.weight is None and self.total is None and not self.in_join:
            return
        walk = thread.walk
        if self.counted is not None and self.counted() is walk:
            return
        self.counted = weakref.ref(walk)
        if self.accumulated and all(self.params[i]._grad is None for i in self.accumulated):
            self.end()  # the program has dropped them
        if (self.weight is None) != (self.total is None) and (self.total or self.accumulated):
            self.end()
            raise self.messages.weights_mixed()
        if self.weight is not None:
            self.total = (self.total or 0.0) + self.weight[0]
        if syncing and self.asks_weights and (self.weight is not None or self.in_join):
            total = np.array([self.total or 0.0])
            self.group.all_reduce(total)
            if self.weight is not None:
                self.rescale(float(total[0]))
