"""Where gradients lie: the buckets' memory, and for each parameter its place in it.

Knows tensors and a group's memory; nothing of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor, wrap
from .buckets import Bucket, ParamMeta
from .rows import Rows, extra


class Housing:
    """The memory of a plan's buckets, with each parameter's view of its slot.

    ``views`` and ``slots`` (the same as arrays) keep their identity when buckets change.
    """

    def __init__(self, params: Sequence[Tensor], metas: Sequence[ParamMeta], group: Any) -> None:
        self.params, self.metas, self.group = params, metas, group
        count = len(params)
        self.views: list[Tensor] = [None] * count  # type: ignore[list-item]
        self.slots: list[np.ndarray] = [None] * count  # type: ignore[list-item]
        self.place = [0] * count
        self.buckets: tuple[Bucket, ...] = ()
        self.flats: list[np.ndarray] = []
        self.rows: Rows | None = None

    def lay_out(self, buckets: Sequence[Bucket], counted: bool) -> None:
        """Take memory for ``buckets``; gradients that lie in the present ones move along.

        ``counted``: the last bucket counts the use of each parameter, too.
        """
        self.buckets = tuple(buckets)
        self.flats = [self.take(b, counted) for b in range(len(self.buckets))]
        for b in range(len(self.buckets)):
            self._house(b)

    def take(self, b: int, counted: bool) -> np.ndarray:
        """Fresh memory for bucket ``b``, all zeros."""
        bucket, more = self.buckets[b], 0
        if b == len(self.buckets) - 1:
            more = extra(self.group.size, len(self.params) if counted else 0)
        flat = self.group.empty(bucket.numel + more, bucket.dtype)
        flat.fill(0)
        return flat

    def gradients(self, b: int) -> np.ndarray:
        """Bucket ``b`` without what is behind its gradients."""
        return self.flats[b][: self.buckets[b].numel]

    def _house(self, b: int) -> None:
        """Let the gradients of bucket ``b`` be views of its memory. Those that are views of another
        one move along; tensors that somebody else has kept, do not."""
        flat = self.flats[b]
        for s in self.buckets[b].slots:
            i = s.param
            slot = flat[s.offset : s.offset + s.numel].reshape(self.metas[i].shape)
            view = self.views[i]
            if view is not None and self.params[i]._grad is view:
                slot[...] = view.array
                view.array = slot
                view._st = None
            else:
                self.views[i] = wrap(slot)
            self.slots[i] = slot
            self.place[i] = b
        if b == len(self.buckets) - 1:
            tail = flat[self.buckets[b].numel :]
            self.rows = Rows(tail, self.group.rank, self.group.size)

    def let_go(self, i: int) -> None:
        """Somebody has kept the last gradient of parameter ``i``: leave its memory to them."""
        b = self.place[i]
        old = self.flats[b]
        flat = self.flats[b] = self.group.empty(old.size, old.dtype)
        flat[...] = old
        self._house(b)
