"""Large reductions between hosts: agents send what their host has added up, owners join it.

One ``Exchange`` is one rank's part in one operation, after all have arrived. It sends the units of
its host to the owners of the pieces that it is the agent of, a window of pieces ahead; joins the
pieces that it owns when every other host's units are there; and, where all are to have the result,
sends that back to the agents, who put it into the memory of all ranks of their host. An owner
answers piece by piece, so the window also bounds what is on its way to anybody.

Knows plans, arithmetic and frames; which memory ranks expose is in ``transport``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from . import frames
from .arithmetic import Arithmetic
from .pipe import Garbage
from .plans import Layout, Piece

WINDOW = 12  # pieces that an agent is ahead of the results


class Exchange:
    """Seen from rank ``me`` of the group. ``views[rank]``: the values of each rank of this host,
    where all of them can be reached; ``out``: where the results of this rank's own pieces go, None
    where all ranks get all results, in ``views``."""

    def __init__(
        self,
        key: int,
        me: int,
        layout: Layout,
        pieces: tuple[Piece, ...],
        sums: Arithmetic,
        views: dict[int, np.ndarray],
        out: np.ndarray | None,
    ) -> None:
        self._key, self._me, self._layout, self._sums = key, me, layout, sums
        self._host = layout.host_of[me]
        self._views, self._out = views, out
        self._pieces = pieces
        self._asked = [
            p
            for p in pieces
            if p.agents[self._host] == me and layout.host_of[p.owner] != self._host
        ]
        self._owned = [p for p in pieces if p.owner == me]
        self._origin = self._owned[0].lo if self._owned else 0
        self._sent = self._answered = self._joined = 0
        self._units: dict[int, dict[int, np.ndarray]] = {p.index: {} for p in self._owned}
        self._whole: dict[int, int] = dict.fromkeys(self._units, 0)  # hosts whose units are there
        self._results: set[int] = set()
        self._free: dict[int, list[np.ndarray]] = {}
        self._lent: deque[np.ndarray] = deque()
        self.arrived = 0

    @property
    def is_over(self) -> bool:
        answered = self._answered if self._out is None else self._sent
        return answered == len(self._asked) and self._joined == len(self._owned)

    # --- going on --------------------------------------------------------------------------------

    def advance(self, send: Callable[..., Any]) -> None:
        """Do what can be done now. ``send(rank, head, data)`` queues a frame."""
        while self._answered < self._sent and self._take_answer():
            pass
        while self._joined < len(self._owned) and self._join(self._owned[self._joined], send):
            self._joined += 1
        limit = len(self._asked) if self._out is not None else self._answered + WINDOW
        while self._sent < min(len(self._asked), limit):
            self._ask(self._asked[self._sent], send)
            self._sent += 1

    def _ask(self, piece: Piece, send: Callable[..., Any]) -> None:
        """Send what this host has of a piece to its owner."""
        count = piece.hi - piece.lo
        size = self._sums.unit_bytes(self._host, count)
        if self._sums.is_plain(self._host):
            data = self._views[self._me][piece.lo : piece.hi].view(np.uint8)
        else:
            data = self._memory(size)
            self._sums.units(self._host, self._part(piece), data)
            if self._out is None:
                self._lent.append(data)  # until the answer
        send(piece.owner, frames.data(self._key, 2 * piece.index, size), data)

    def _join(self, piece: Piece, send: Callable[..., Any]) -> bool:
        """Join a piece that this rank owns; False where some host's units are missing."""
        if self._whole[piece.index] < len(self._layout.hosts) - 1:
            return False
        others = self._units.pop(piece.index)
        if self._out is None:
            into = self._views[self._me][piece.lo : piece.hi]
        else:
            into = self._out[piece.lo - self._origin : piece.hi - self._origin]
        self._sums.join(self._host, self._part(piece), others, into)
        for sent in others.values():
            self._free.setdefault(sent.size, []).append(sent)
        if self._out is None:
            self._spread(piece, into)
            head = frames.data(self._key, 2 * piece.index + 1, into.nbytes)
            for host, agent in enumerate(piece.agents):
                if host != self._host:
                    send(agent, head, into.view(np.uint8))
        return True

    def _take_answer(self) -> bool:
        piece = self._asked[self._answered]
        if piece.index not in self._results:
            return False
        self._results.remove(piece.index)
        self._spread(piece, self._views[self._me][piece.lo : piece.hi])
        if self._lent:
            done = self._lent.popleft()
            self._free.setdefault(done.size, []).append(done)
        self._answered += 1
        return True

    def _spread(self, piece: Piece, result: np.ndarray) -> None:
        """Into the memory of the other ranks of this host."""
        for rank, view in self._views.items():
            if rank != self._me:
                view[piece.lo : piece.hi] = result

    def _part(self, piece: Piece) -> Any:
        views, lo, hi = self._views, piece.lo, piece.hi
        return lambda rank: views[rank][lo:hi]

    def _memory(self, size: int) -> np.ndarray:
        free = self._free.get(size)
        return free.pop() if free else np.empty(size, np.uint8)

    # --- what others send ------------------------------------------------------------------------

    def target(self, rank: int, index: int, size: int) -> memoryview:
        """Where a piece belongs. ``rank``: of the group."""
        if index >> 1 >= len(self._pieces):
            raise Garbage(f"piece {index >> 1} of {len(self._pieces)}")
        piece, host = self._pieces[index >> 1], self._layout.host_of[rank]
        count = piece.hi - piece.lo
        if index & 1:
            view = self._views[self._me][piece.lo : piece.hi].view(np.uint8)
            fits = piece.owner == rank and piece.agents[self._host] == self._me
            if not fits or size != view.size or self._out is not None:
                raise Garbage(f"a result of {size} bytes which nobody has asked for")
            return view.data
        units = self._units.get(piece.index)
        fits = units is not None and piece.agents[host] == rank and host not in units
        if not fits or size != self._sums.unit_bytes(host, count):
            raise Garbage(f"{size} bytes for a piece that is not theirs")
        assert units is not None
        units[host] = self._memory(size)
        return units[host].data

    def taken(self, rank: int, index: int) -> None:
        if index & 1:
            self._results.add(index >> 1)
        else:
            self._whole[index >> 1] += 1
        self.arrived += 1
