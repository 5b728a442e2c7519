"""Each rank's parameters to all others, in few large messages. Knows no optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.device.memory import memory_of
from ...comm.group.group import ProcessGroup
from ...core.tensor import Tensor, wrap
from ...core.writes import touched
from .partition import CHUNK_BYTES, plan_chunks


class Sharing:
    """Sends the parameters that this rank owns to the others, and takes theirs.

    ``owned[r]``: the parameters of rank r, of one element type; alike on every rank. ``views``: let
    all of them lie in memory that the group reads directly, one behind the other, so that nothing
    is copied.
    """

    def __init__(
        self, group: ProcessGroup, owned: Sequence[Sequence[Tensor]], views: bool = False
    ) -> None:
        self.group, self.owned = group, [list(params) for params in owned]
        everything = [p for params in self.owned for p in params]
        self.chunks: list[list[tuple[int, int]]] = []
        self.views = views
        if not everything or (group.size == 1 and not views):
            return
        kind = everything[0].array.dtype
        sizes = [[p.array.size for p in params] for params in self.owned]
        total = sum(map(sum, sizes))
        self.chunks = plan_chunks(sizes, total if views else max(CHUNK_BYTES // kind.itemsize, 1))
        longest = max(self._length(chunk) for chunk in self.chunks)
        self.memory = memory_of(everything[0].array)
        self.flat = self.memory.flat(group, longest, kind)
        if views:
            for p, place in self._places(self.chunks[0]):
                place[...] = self.memory.raw(p.array)
                p.data = wrap(self.memory.held(place))

    def _length(self, chunk: list[tuple[int, int]]) -> int:
        pairs = zip(self.owned, chunk, strict=True)
        return sum(p.array.size for params, (a, b) in pairs for p in params[a:b])

    def _parts(self, chunk: list[tuple[int, int]]) -> list[Any]:
        """Each rank's part of the message."""
        out, at = [], 0
        for params, (a, b) in zip(self.owned, chunk, strict=True):
            n = sum(p.array.size for p in params[a:b])
            out.append(self.flat[at : at + n])
            at += n
        return out

    def _places(self, chunk: list[tuple[int, int]], rank: int | None = None) -> list[tuple]:
        """(parameter, where it lies in the message), of all ranks or of one."""
        out = []
        for r, part in enumerate(self._parts(chunk)):
            at, (a, b) = 0, chunk[r]
            for p in self.owned[r][a:b]:
                n = p.array.size
                if rank in (None, r):
                    out.append((p, part[at : at + n].reshape(tuple(p.shape))))
                at += n
        return out

    def sync(self) -> None:
        """Every rank gets the others' parameters as they are now."""
        mine = self.group.rank
        for chunk in self.chunks:
            if not self.views:
                for p, place in self._places(chunk, mine):
                    place[...] = self.memory.raw(p.array)
            parts = self._parts(chunk)
            self.group.all_gather(parts, parts[mine])
            for r in range(self.group.size):
                for p, place in self._places(chunk, r) if r != mine else ():
                    if not self.views:
                        self.memory.raw(p.array)[...] = place
                    touched(p)

    def release(self) -> None:
        """Give parameters that lie in the shared memory memory of their own."""
        if self.views:
            for params in self.owned:
                for p in params:
                    p.data = wrap(p.array.copy("C"))
