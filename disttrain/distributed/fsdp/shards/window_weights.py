"""Full weights of another type or cut than their shards, once per host: every rank writes its part,
in the type that is wanted, into memory that all ranks see.

The shards lie where ``GatheredWeights`` has them. Before a rank writes, all must have left what is
there; the last one to leave gives the pages back to the system. Knows arrays and members.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .dtensor_params import full_array
from .lanes import Line
from .layout import ALIGN, own_part
from .weights import GatheredWeights, read_only

GIVE_BACK = 256 << 10  # bytes: to get smaller memory again costs more than to keep it


class Window:
    """Weights of which there is one copy for all ranks of the group: every rank writes its part
    into memory that all see."""

    shared: Any = None
    _parts: list[np.ndarray]  # of the full weights, this rank's
    _fulls: list[np.ndarray]
    _begun = False

    def _open_window(self) -> None:
        """Make the memory, on all ranks together, when it is first needed."""
        raise NotImplementedError

    def _own_parts(self) -> list[np.ndarray]:
        """What this rank writes."""
        raise NotImplementedError

    def start(self, async_op: bool, line: Line) -> None:
        """Write this rank's part; the others' come when they do."""
        self.refresh()  # type: ignore[attr-defined]
        if self.shared is None:
            self._open_window()
        self.shared.wait_closed()
        for part, shard in zip(self._parts, self._own_parts(), strict=True):
            np.copyto(part, shard, casting="unsafe")
        self.shared.announce()
        self._begun = True

    def finish(self) -> None:
        """Wait until all have written, and give the full weights their memory."""
        self.shared.wait_open()
        for m, full in zip(self.members, self._fulls, strict=True):  # type: ignore[attr-defined]
            m.full.array = full_array(m, full)

    def drop(self) -> None:
        """This rank does not need the full weights any more."""
        for m in self.members:  # type: ignore[attr-defined]
            m.full.__dict__.pop("array", None)
        if self._begun:
            self._begun = False
            self.shared.close(give_back=self.nbytes >= GIVE_BACK)  # type: ignore[attr-defined]


class WindowWeights(Window, GatheredWeights):
    """As ``GatheredWeights``, in a window."""

    def _open_window(self) -> None:
        """Make the memory, on all ranks together, when it is first needed."""
        offsets, end, size = [], 0, self.used.itemsize
        for m in self.members:
            offsets.append(end)
            end += -(-m.layout.numel * size // ALIGN) * ALIGN
        self.shared = self.blocks.share(max(end, ALIGN))
        rank = self.sharding.rank
        self._parts, self._fulls = [], []
        for m, at in zip(self.members, offsets, strict=True):
            flat = self.shared.bytes[at : at + m.layout.numel * size].view(self.used)
            full = flat.reshape(m.layout.shape)
            self._parts.append(own_part(full, m.layout, rank))
            self._fulls.append(read_only(full))

    def _own_parts(self) -> list[np.ndarray]:
        return self.shards
