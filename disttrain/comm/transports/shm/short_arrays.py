"""All-reduce of arrays so short that every rank exposes all of its data and reduces all of it.

One flag and no second barrier: what is exposed stays until the operation after the next begins,
which no rank enters before all have finished this one. Where data lies is known from one call to
the next, so a rank compares a peer's header and learns where its data is by one look at bytes.

Knows channels and arrays; who waits, and for how long, is in ``transport.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import CollectiveMismatch
from ...calls.header import Call
from .channel import FINISHED, PAYLOAD_BYTES, SLOT, WHERE
from .operation import Staging


class Exposed:
    """What a call exposes in operations of one parity, and what is known of its peers' data."""

    __slots__ = ("known", "own", "parts", "rest")

    def __init__(self, own: np.ndarray, rest: bytes, peers: int) -> None:
        """``own``: where this rank's data goes; ``rest``: its header, but for the number."""
        self.own, self.rest = own, rest
        self.parts = [own]  # everybody's data, as far as it is known
        self.known = [b""] * peers  # of each peer's header: what follows on its number


class Whole:
    """What is prepared for one call (a line and its arguments), which holds it: so not the call,
    or both, with their scratch memory, would wait for the garbage collector."""

    __slots__ = ("_staging", "_tail", "_told", "exposed", "reduce")

    def __init__(self, staging: Staging, call: Call, array: np.ndarray, reduce: Callable) -> None:
        self._staging, self._tail, self._told, self.reduce = staging, call.tail, call.told, reduce
        self.exposed = [self._expose(array, parity) for parity in (0, 1)]

    def _expose(self, array: np.ndarray, parity: int) -> Exposed:
        staging, channel, nbytes = self._staging, self._staging.channel, array.nbytes
        small = nbytes <= PAYLOAD_BYTES
        offset = channel.payload(channel.me, parity) if small else staging.half(parity)
        own = staging.hub.bytes[offset : offset + nbytes].view(array.dtype)
        header = self._tail + WHERE.pack(SLOT, offset, 0) + self._told
        made = Exposed(own, header, len(channel.peers))
        if small:
            members = range(len(channel.ranks))
            self.learn(made, [(channel.payload(i, parity), SLOT, 0) for i in members])
        return made

    def elsewhere(self, seq: int, exposed: Exposed) -> list[np.ndarray]:
        """Everybody's data in operation ``seq``, where some rank has made another call, which
        raises; or its data lies where it did not before: it is an async call's, or the first one
        that is too long for a small payload."""
        channel = self._staging.channel
        try:
            channel.verify(seq)
        except CollectiveMismatch:
            channel.publish(FINISHED, seq)
            raise
        return self.learn(exposed, channel.where(seq))

    def learn(self, exposed: Exposed, where: list[tuple[int, int, int]]) -> list[np.ndarray]:
        """Everybody's data in an operation in which it lies at ``where`` (see ``Channel.where``),
        all headers being alike; whose data is where it will be again is known from now on."""
        channel, own = self._staging.channel, exposed.own
        memory, nbytes = self._staging.hub.bytes, own.nbytes
        parts = [memory[at : at + nbytes].view(own.dtype) for at, _, _ in where]
        if all(mode == SLOT for _, mode, _ in where):
            exposed.parts, tail = parts, self._tail
            exposed.known = [tail + WHERE.pack(SLOT, where[i][0], 0)[:16] for i in channel.peers]
        return parts
