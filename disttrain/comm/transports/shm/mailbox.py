"""Messages between pairs of ranks in shared memory: send and recv with tags.

At the start of its arena every rank has, for each peer, 64 message slots (it writes, the peer
reads) and the acknowledgements of what that peer has sent to it:

    pair(r, p) = acks: 64 words | text of a refusal | 64 slots of 2 KiB
    slot       = posted u64 | filled u64 | fingerprint 40 | key u64 | offset, mode, nbytes | text
                 | at 512: the message itself where it is small

Larger messages lie in the sender's arena: in the caller's array, when that is there (then a send
ends with the acknowledgement), or in a copy which the receiver follows as it is made (then it ends
with the copy). Slots are taken in order; the receiver may consume them out of order, by key
(group and tag). One mailbox serves all groups of a rank.
"""

from __future__ import annotations

import struct
from collections import deque

import numpy as np

from ....errors import CollectiveMismatch
from ...calls.header import SIZE as FINGERPRINT
from ...calls.header import Call, difference, mismatch_text, told_text
from ...calls.work import Work
from .channel import DIRECT, STAGED
from .deadlock import Edge
from .hub import CHUNK_BITS, Hub

NUM_SLOTS, SLOT_BYTES = 64, 2048
ACKS_BYTES = 4096
PAIR_BYTES = ACKS_BYTES + NUM_SLOTS * SLOT_BYTES
REFUSAL_AT = 512
PRINT_AT, KEY_AT, _TEXT_AT, INLINE_AT = 16, 56, 88, 512
INLINE_BYTES = SLOT_BYTES - INLINE_AT
_KEY = struct.Struct("<QQQQ")  # key, offset, mode, nbytes
_INLINE = 0
_COPY_BYTES = 512 << 10


class _Message(Work):
    """A send or a receive in flight; also the ``Need`` of whoever waits for it."""

    __slots__ = ("array", "box", "call", "data", "key", "number", "peer", "timeout")

    number: int  # of the message among those of its pair; 0 while it is not known

    def __init__(self, box: Mailbox, call: Call, array: np.ndarray, peer: int | None, key: int):
        super().__init__()
        self.box, self.call, self.peer, self.key = box, call, peer, key
        self.array, self.data = array, array.view(np.uint8)
        self.number = 0
        self.timeout: float | None = None

    def _poll(self) -> None:
        self.box.hub.progress()

    def _block(self, timeout: float | None) -> None:
        self.box.hub.wait(self, self.timeout if timeout is None else timeout)

    def __call__(self) -> bool:
        return self._done

    def what(self) -> str:
        return f"{self.call.text}; rank {'any' if self.peer is None else self.peer} has not come"

    def edges(self) -> list[Edge]:
        raise NotImplementedError


class Send(_Message):
    __slots__ = ("block", "dst")

    def __init__(self, box: Mailbox, call: Call, array: np.ndarray, dst: int, key: int) -> None:
        super().__init__(box, call, array, dst, key)
        self.dst, self.block = dst, 0

    def edges(self) -> list[Edge]:
        number = self.number or self.box.sent[self.dst] + 1 - NUM_SLOTS
        return [(self.dst, self.box.ack_index(self.dst, number), self.box.value(number))]


class Recv(_Message):
    __slots__ = ("got", "outcome", "source")

    def __init__(
        self, box: Mailbox, call: Call, array: np.ndarray, src: int | None, key: int
    ) -> None:
        super().__init__(box, call, array, src, key)
        self.got, self.source = 0, -1  # bytes copied; the rank whose message it has claimed
        self.outcome: tuple = ()

    @property
    def any_of(self) -> bool:
        """Whether one of the flags is enough."""
        return self.peer is None

    def edges(self) -> list[Edge]:
        if self.number:
            return []
        me = self.box.hub.rank
        sources = range(self.box.hub.size) if self.peer is None else (self.peer,)
        found = []
        for src in sources:
            number = self.box.seen[src] + 1
            if src != me or self.peer == me:
                found.append((src, self.box.slot(src, me, number) // 8, self.box.value(number)))
        return found


class Mailbox:
    """All messages of one rank."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._base = hub.start << CHUNK_BITS
        n = hub.size
        self._starts = [hub.segment.arena(r)[0] for r in range(n)]
        self.sent = [0] * n  # number of the last message posted to each peer
        self.seen = [0] * n  # number of the last message noticed from each peer
        self._unsent: list[deque[Send]] = [deque() for _ in range(n)]
        self._unacked: list[deque[Send]] = [deque() for _ in range(n)]
        self._inline: list[list[int]] = [[] for _ in range(n)]  # numbers, not known to be read
        self._unclaimed: list[list[tuple[int, int]]] = [[] for _ in range(n)]  # (number, key)
        self._recvs: list[Recv] = []  # in the order in which they were posted
        self._refused: dict[int, str] = {}

    @staticmethod
    def reserved(num_ranks: int) -> int:
        """Bytes that mailboxes take at the start of each arena."""
        return num_ranks * PAIR_BYTES

    def send(self, call: Call, array: np.ndarray, dst: int, key: int, timeout: float) -> Work:
        """Start sending ``array`` to world rank ``dst``."""
        message = Send(self, call, array, dst, key)
        message.timeout = timeout
        with self.hub.lock:
            if self._inline[dst]:
                self._look_back(dst)
            if dst in self._refused:
                raise CollectiveMismatch(self._refused.pop(dst))
            self._unsent[dst].append(message)
            self._go_on()
        return message

    def recv(
        self,
        call: Call,
        array: np.ndarray,
        src: int | None,
        key: int,
        timeout: float,
    ) -> Work:
        """Start receiving from world rank ``src`` (None: any); the result is the source."""
        message = Recv(self, call, array, src, key)
        message.timeout = timeout
        with self.hub.lock:
            self._recvs.append(message)
            self._go_on()
        return message

    def abandon(self) -> None:
        """Nobody reads these messages any more: free what they lie in."""
        for queue in self._unacked:
            for message in queue:
                if message.block:
                    self.hub.arena.give(message.block)
                    message.block = 0

    def advance(self) -> None:
        """Go on with everything as far as possible. Never blocks."""
        for dst, queue in enumerate(self._unacked):
            if queue:
                self._collect(dst, queue)
        for dst, queue in enumerate(self._unsent):
            while queue and self._room(dst):
                self._post(dst, queue.popleft())
        if self._recvs:
            self._match()
        idle = not (self._recvs or any(self._unsent) or any(self._unacked))
        if idle and self in self.hub.pending:
            self.hub.pending.remove(self)

    def head_need(self) -> None:
        """Nothing: a message moves as soon as the rank at its other end does its part."""

    def _go_on(self) -> None:
        if self not in self.hub.pending:
            self.hub.pending.append(self)
        self.advance()

    # -- places -------------------------------------------------------------------------------

    def value(self, number: int) -> int:
        """The word of message ``number``; one more says that it was refused."""
        return self._base + 2 * number

    def slot(self, src: int, dst: int, number: int) -> int:
        pair = self._starts[src] + dst * PAIR_BYTES
        return pair + ACKS_BYTES + (number % NUM_SLOTS) * SLOT_BYTES

    def ack_index(self, dst: int, number: int) -> int:
        """The word with which ``dst`` acknowledges this rank's message ``number``."""
        pair = self._starts[dst] + self.hub.rank * PAIR_BYTES
        return pair // 8 + number % NUM_SLOTS

    # -- sending ------------------------------------------------------------------------------

    def _room(self, dst: int) -> bool:
        """Is the slot of the next message free?"""
        before = self.sent[dst] + 1 - NUM_SLOTS
        return before <= 0 or self.hub.words[self.ack_index(dst, before)] >= self.value(before)

    def _post(self, dst: int, message: Send) -> None:
        """Put the next message into its slot, which is free."""
        number, words = self.sent[dst] + 1, self.hub.words
        self.sent[dst] = message.number = number
        nbytes = message.data.nbytes
        offset = self.hub.offset_of(message.data) if nbytes > INLINE_BYTES else 0
        mode = DIRECT if offset else STAGED if nbytes > INLINE_BYTES else _INLINE
        slot = self.slot(self.hub.rank, dst, number)
        if mode == STAGED:
            offset = message.block = self.hub.arena.take(nbytes)
        elif mode == _INLINE:
            offset = slot + INLINE_AT
            self.hub.bytes[offset : offset + nbytes] = message.data
        told = number.to_bytes(8, "little") + message.call.tail
        told += _KEY.pack(message.key, offset, mode, nbytes) + message.call.told
        told = told[: INLINE_AT - PRINT_AT]
        self.hub.buffer[slot + PRINT_AT : slot + PRINT_AT + len(told)] = told
        words[slot // 8 + 1] = 0 if mode == STAGED else nbytes
        words[slot // 8] = self.value(number)
        if mode == STAGED:
            self._stage(message, offset, slot // 8 + 1)
        if mode == _INLINE:
            self._inline[dst].append(number)
        else:
            self._unacked[dst].append(message)
        if mode != DIRECT:
            message._end(message.array)

    def _stage(self, message: Send, offset: int, filled: int) -> None:
        """Copy in pieces; the receiver follows."""
        data, into = message.data, self.hub.bytes[offset : offset + message.data.nbytes]
        for lo in range(0, data.nbytes, _COPY_BYTES):
            hi = min(lo + _COPY_BYTES, data.nbytes)
            into[lo:hi] = data[lo:hi]
            self.hub.words[filled] = hi

    def _collect(self, dst: int, queue: deque[Send]) -> None:
        """Notice acknowledgements; they come in any order."""
        for message in list(queue):
            word = self.hub.words[self.ack_index(dst, message.number)]
            if word < self.value(message.number):
                continue
            queue.remove(message)
            if message.block:
                self.hub.arena.give(message.block)
            refused = word == self.value(message.number) + 1
            error = CollectiveMismatch(self._refusal(dst)) if refused else None
            if not message._done:
                message._end(message.array, error)
            elif refused:
                self._refused[dst] = str(error)

    def _look_back(self, dst: int) -> None:
        """Were small messages, whose sends are long over, refused?"""
        unread = []
        for number in self._inline[dst]:
            word = self.hub.words[self.ack_index(dst, number)]
            if word < self.value(number):
                unread.append(number)
            elif word == self.value(number) + 1:
                self._refused[dst] = self._refusal(dst)
        self._inline[dst] = unread

    def _refusal(self, dst: int) -> str:
        at = self._starts[dst] + self.hub.rank * PAIR_BYTES + REFUSAL_AT
        return told_text(self.hub.buffer[at : at + ACKS_BYTES - REFUSAL_AT])

    # -- receiving ----------------------------------------------------------------------------

    def _match(self) -> None:
        """Give arrived messages to the receives that want them, both in order."""
        for src in range(self.hub.size):
            self._notice(src)
        for message in list(self._recvs):
            if not (message.number or message._done):
                sources = range(self.hub.size) if message.peer is None else (message.peer,)
                if not any(self._claim(message, src) for src in sources):
                    continue
            if not message._done and self._take(message):
                self._recvs.remove(message)  # before the end: its callbacks may come back here
                message._end(*message.outcome)

    def _notice(self, src: int) -> None:
        while True:
            number = self.seen[src] + 1
            slot = self.slot(src, self.hub.rank, number)
            if self.hub.words[slot // 8] != self.value(number):
                return
            self.seen[src] = number
            self._unclaimed[src].append((number, self.hub.words[(slot + KEY_AT) // 8]))

    def _claim(self, message: Recv, src: int) -> bool:
        for item in self._unclaimed[src]:
            if item[1] == message.key:
                self._unclaimed[src].remove(item)
                message.number, message.source = item[0], src
                return True
        return False

    def _take(self, message: Recv) -> bool:
        """Copy what is there of a claimed message; True when it is complete (or refused)."""
        slot = self.slot(message.source, self.hub.rank, message.number)
        if not message.got and self._refuse(message, slot):
            return True
        _, offset, _, nbytes = _KEY.unpack_from(self.hub.buffer, slot + KEY_AT)
        there = self.hub.words[slot // 8 + 1]
        if there > message.got:
            source = self.hub.bytes[offset + message.got : offset + there]
            message.data[message.got : there] = source
            message.got = there
        if message.got < nbytes:
            return False
        self._acknowledge(message, 0)
        message.outcome = (message.source, None)
        return True

    def _refuse(self, message: Recv, slot: int) -> bool:
        """Compare the headers; where they differ, both sides get the error."""
        theirs = self.hub.buffer[slot + PRINT_AT : slot + PRINT_AT + FINGERPRINT]
        mine = message.number.to_bytes(8, "little") + message.call.tail
        if mine == theirs:
            return False
        field = difference([mine, theirs])
        if not field:
            return False
        told = told_text(self.hub.buffer[slot + _TEXT_AT : slot + INLINE_AT])
        calls = {message.source: told, self.hub.rank: message.call.text}
        text = mismatch_text("send and recv", message.number, field, calls)
        data = text.encode()[: ACKS_BYTES - REFUSAL_AT - 2]
        at = self._starts[self.hub.rank] + message.source * PAIR_BYTES + REFUSAL_AT
        self.hub.buffer[at : at + 2 + len(data)] = len(data).to_bytes(2, "little") + data
        self._acknowledge(message, 1)
        message.outcome = (None, CollectiveMismatch(text))
        return True

    def _acknowledge(self, message: Recv, refused: int) -> None:
        pair = self._starts[self.hub.rank] + message.source * PAIR_BYTES
        word = pair // 8 + message.number % NUM_SLOTS
        self.hub.words[word] = self.value(message.number) + refused
