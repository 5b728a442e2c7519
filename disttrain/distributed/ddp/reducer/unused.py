"""Parameters that a backward does not reach: what they give to the average, and what they get.

The part of the reducer that knows them. Knows no order of buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from .scaling import Scaled
from .side_data import DeviceRows
from .stores import IDLE


class Unused(Scaled):
    """Those of this rank, and which ranks have used what."""

    settings: Any
    fired: list[int]
    unused: list[int]
    kept: dict[int, Any]
    used: Any
    low: Any

    def ready(self, i: int) -> None:
        """The gradient of parameter ``i`` is in its slot."""
        raise NotImplementedError

    def is_frozen(self, i: int) -> bool:
        """Whether parameter ``i`` was frozen after it was wrapped: it takes part with zeros, and
        keeps the ``.grad`` that it has."""
        return self.params[i]._node is None

    def _fill_unused(self, indices: Sequence[int]) -> None:
        """Parameters without gradients here still take part: with zeros, or with what they have."""
        for i in indices:
            slot = self.house.slots[i]
            grad = self.params[i]._grad
            old = None if grad is None else self.memory.raw(grad.array)
            if old is None:
                slot.fill(0)
            elif self.total is not None and i not in self.accumulated:
                self.kept[i] = self.carried[i] = old.copy()
                slot.fill(0)
            else:
                self.kept[i] = old.copy()
                common = self.scales_of(slot.dtype).common.astype(old.dtype)
                np.copyto(slot, old * common, casting="unsafe")
            self.unused.append(i)
            self.fired[i] = 1
            self.ready(i)

    def _idle(self) -> list[int]:
        """The parameters that this rank has not used since the last synchronised backward."""
        return [i for i in self.unused if i not in self.accumulated]

    def hear_late(self) -> None:
        """Before a forward: see what the others have said in earlier steps, as far as it has come
        from the device."""
        rows = self.house.rows
        missing = rows.arrived() if isinstance(rows, DeviceRows) else []
        if missing:
            self.phase = IDLE
            raise self.messages.missing_elsewhere(missing)

    def _count_used(self, idle: Collection[int]) -> None:
        """Learn what the ranks have used: from the last bucket, or by asking, where hooks reduce
        the buckets. ``idle``: what this one has not."""
        if self.hook is None:
            if not self.memory.on_host and not self.unused:
                return  # nobody asks, and to know it would be to wait
            self.used = self.house.rows.counted()  # type: ignore[union-attr]
        else:
            self.used = np.ones(len(self.params), np.int32)
            self.used[list(idle)] = 0
            self.group.all_reduce(self.used)
        if not self.settings.find_unused:
            self.used = self.used.copy()  # for all steps

    def _settle_unused(self) -> None:
        """Parameters unused here get the average, unless no rank has used them."""
        house, used = self.house, self.used
        for i in self.unused:
            p = self.params[i]
            if (used is None or used[i]) and not self.is_frozen(i):
                p._grad = house.views[i]
                continue
            self.carried.pop(i, None)
            if self.low is None and i in self.kept and p._grad is house.views[i]:
                house.slots[i][...] = self.kept[i]
