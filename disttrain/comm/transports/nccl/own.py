"""Messages of a rank to itself, which NCCL has only within one group of calls.

A send keeps a copy, made in the caller's stream, for the receive that asks for it; a receive that
comes first ends with the send. Knows arrays, works and nothing of NCCL.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ....backends.device.array import Located
from ....errors import CollectiveMismatch
from ...calls.header import Call, mismatch_text
from .works import DeviceWork


class OwnMail:
    """Of one transport, in the order of the messages."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self._sent: deque[tuple[Call, Any, Any]] = deque()  # copies, and when they are made
        self._wanted: deque[tuple[Any, DeviceWork]] = deque()

    def send(self, call: Call, array: Any) -> DeviceWork:
        """The work has ended when the copy is made."""
        index = self.of.platform.index_of(array)
        work = DeviceWork(self.of, call, index, array)
        with Located(self.of.platform, index):
            self._sent.append((call, array.copy(), self.of.mark(index)))
        work.event = self._sent[-1][2]
        self._match()
        return work

    def recv(self, call: Call, array: object) -> DeviceWork:
        """The work ends when the message is in ``array``."""
        work = DeviceWork(self.of, call, self.of.platform.index_of(array), self.of.rank)
        self._wanted.append((array, work))
        self._match()
        return work

    def _match(self) -> None:
        while self._sent and self._wanted:
            (sent, copy, made), (array, work) = self._sent.popleft(), self._wanted.popleft()
            if (copy.dtype, copy.size) != (array.dtype, array.size):
                texts = {0: sent.text, 1: work.call.text}
                where = f"group {self.of.name}: a message of rank {self.of.rank} to itself"
                work.fail(CollectiveMismatch(mismatch_text(where, 0, "numel", texts)))
                continue
            self.of.join(made, work.index)
            with Located(self.of.platform, work.index):
                if array.size:
                    array[...] = copy
            work.event = self.of.mark(work.index)
