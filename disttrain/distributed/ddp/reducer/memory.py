"""Where gradients lie: the buckets' memory, and for each parameter its place in it.

Knows tensors, where the parameters lie, and a group's memory; nothing of iterations.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends.device.memory import Memory, bytes_of, lend
from ....comm.group.group import ProcessGroup
from ....core.tensor import Tensor, wrap
from .buckets import Bucket, ParamMeta
from .side_data import Rows, extra, rows_in

_ALIGN = 256  # bytes at whose multiples buckets begin


class BucketMemory:
    """The memory of a plan's buckets, with each parameter's view of its slot.

    ``slots`` are raw arrays; ``views`` are lent to the program, which may keep one. Both lists keep
    their identity when buckets change.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        metas: Sequence[ParamMeta],
        group: ProcessGroup,
        memory: Memory,
    ) -> None:
        self.params, self.metas, self.group, self.memory = params, metas, group, memory
        count = len(params)
        self.views: list[Tensor] = [None] * count  # type: ignore[list-item]
        self.slots: list[Any] = [None] * count
        self.place = [0] * count
        self._lent: list[Any] = [None] * count  # on the host: dead when nobody has the view
        self._spans: list[Any] = [None] * count  # there, what ``lend`` wants for each view
        self.buckets: tuple[Bucket, ...] = ()
        self.flats: list[Any] = []
        self.rows: Rows | None = None

    def lay_out(self, buckets: Sequence[Bucket], counted: bool) -> None:
        """Take memory for ``buckets``; gradients that lie in the present ones move along.

        ``counted``: the last bucket counts the use of each parameter, too. The present ones are
        given back first, so that there is never more than one set of them for good.
        """
        self._vacate()
        self.buckets = tuple(buckets)
        self.flats = self._take_all(counted)
        for b in range(len(self.buckets)):
            self._house(b)

    def _take_all(self, counted: bool) -> list[Any]:
        """Memory for all buckets, zeros; on the host in one piece. However the parameters are
        divided that is equally large, so that other buckets fit where the ones before have been.
        Devices have pools for that, and know by pieces what work is on its way to them."""
        if not self.memory.on_host:
            return [self.take(b, counted) for b in range(len(self.buckets))]
        sizes = [self._size(b, counted) for b in range(len(self.buckets))]
        kinds = [b.dtype for b in self.buckets]
        nbytes = [n * kind.itemsize for n, kind in zip(sizes, kinds, strict=True)]
        whole = self.memory.flat(self.group, sum(nbytes) + _ALIGN * len(self.params), np.uint8)
        flats, at = [], 0
        for n, kind in zip(nbytes, kinds, strict=True):
            flats.append(whole[at : at + n].view(kind))
            flats[-1].fill(0)
            at += -(-n // _ALIGN) * _ALIGN
        return flats

    def _vacate(self) -> None:
        """Keep nothing of the present buckets: gradients wait outside, others are forgotten."""
        for i, view in enumerate(self.views):
            self.slots[i] = self._spans[i] = self._lent[i] = None
            if view is not None and self.params[i]._grad is view:
                view.array = self.memory.held(self.memory.raw(view.array).copy())
                view._st = None
            else:
                self.views[i] = None  # type: ignore[call-overload]
        self.flats, self.rows = [], None

    def take(self, b: int, counted: bool) -> Any:
        """Fresh memory for bucket ``b``, all zeros."""
        flat = self.memory.flat(self.group, self._size(b, counted), self.buckets[b].dtype)
        flat.fill(0)
        return flat

    def _size(self, b: int, counted: bool) -> int:
        """Elements of bucket ``b``, with what is behind its gradients."""
        numel = self.buckets[b].numel
        if b < len(self.buckets) - 1:
            return numel
        return numel + extra(self.group.size, len(self.params) if counted else 0, self.memory)

    def gradients(self, b: int) -> Any:
        """Bucket ``b`` without what is behind its gradients."""
        return self.flats[b][: self.buckets[b].numel]

    def _house(self, b: int) -> None:
        """Let the gradients of bucket ``b`` be views of its memory. Those that are views of another
        one move along; tensors that somebody else has kept, do not."""
        flat = self.flats[b]
        memory = bytes_of(flat) if self.memory.on_host else None
        for s in self.buckets[b].slots:
            i = s.param
            shape = self.metas[i].shape
            slot = flat[s.offset : s.offset + s.numel].reshape(shape)
            view = self.views[i]
            self.slots[i] = slot
            self.place[i] = b
            self._spans[i] = (memory, flat.dtype, shape, s.numel, s.offset * flat.itemsize)
            if view is not None and self.params[i]._grad is view:
                slot[...] = self.memory.raw(view.array)
                view.array = self._lend(i)
                view._st = None
            else:
                self.views[i] = wrap(self._lend(i))
        if b == len(self.buckets) - 1:
            tail = flat[self.buckets[b].numel :]
            self.rows = rows_in(tail, self.group.rank, self.group.size, self.memory)

    def _lend(self, i: int) -> Any:
        """The memory of parameter ``i``'s gradient as an array for its view."""
        if not self.memory.on_host:
            return self.memory.held(self.slots[i])
        array, self._lent[i] = lend(*self._spans[i])
        return array

    def is_kept(self, i: int) -> bool:
        """Whether somebody has kept the last gradient of parameter ``i``, or looks into it. It gets
        another view."""
        if self.memory.on_host:
            self.views[i] = None  # type: ignore[call-overload]
            kept = self._lent[i]() is not None
        else:  # views are over arrays of their own there
            refs = [weakref.ref(x) for x in (self.views[i], self.views[i]._st) if x is not None]
            self.views[i] = None  # type: ignore[call-overload]
            kept = any(ref() is not None for ref in refs)
        self.views[i] = wrap(self._lend(i))
        return kept

    def let_go(self, i: int) -> None:
        """Somebody has kept the last gradient of parameter ``i``: leave its memory to them."""
        b = self.place[i]
        old = self.flats[b]
        flat = self.flats[b] = self.memory.flat(self.group, old.size, old.dtype)
        flat[...] = old
        self._house(b)
