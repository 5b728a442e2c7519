"""The control blocks of one group in shared memory: flags, operation headers, small payloads.

Every member has one block of 64 KiB, written by it alone and read by its peers:

    0x0000  posted    the last operation that this rank has entered (its header is there)
    0x0040  filled    chunks of its own data that lie in its ring
    0x0080  done      chunks of the operation that it has reduced or pulled
    0x00C0  finished  the last operation for which it reads nothing of others any more
    0x0100  left      the last operation that it has entered, if it left without meeting the others
    0x1000  64 headers of 512 bytes, by operation number modulo 64:
            fingerprint 40 | where its data lies: mode u64, offset u64, sizes u64 | text
    0x9000  two payloads of 12 KiB, by parity of the operation number

Knows bytes and flags; what the operations do is in ``steps.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ....errors import CollectiveMismatch
from ...calls.header import SIZE as FINGERPRINT
from ...calls.header import Call, difference, list_calls, mismatch_text, name_ranks, told_text
from .deadlock import Edge
from .hub import CHUNK_BITS, LEAD, Flags, Hub
from .oversubscription import FOR_ALL_AT, FOR_ANY_AT, Bell

BLOCK_BYTES = 64 << 10
CONTROL_BYTES = 0x1000  # the flags; must be zero before a block is used
POSTED, FILLED, DONE, FINISHED, LEFT = 0x0, 0x40, 0x80, 0xC0, 0x100
HEADERS_AT, HEADER_BYTES, NUM_HEADERS = 0x1000, 512, 64
PAYLOAD_AT, PAYLOAD_BYTES = 0x9000, 12 << 10

# Where a rank's data of an operation lies (``mode`` in the header).
NONE = 0
DIRECT = 1  # in the caller's own array, which lies in shared memory
STAGED = 2  # in a copy that stays until everybody has finished
RING = 3  # in a ring of chunks that is filled as the operation goes on
SLOT = 4  # in the small payload that belongs to the operation's parity
REMOTE = 5  # in the caller's own array, at an address of its process (see ``process_memory``)

WHERE = struct.Struct("<QQQ")  # mode, offset, sizes
KNOWN = FINGERPRINT + 16  # bytes of a header which say what is called, and where the data lies


def last_word(buffer: Any, block: int) -> int:
    """The largest word that the flags of a control block have had."""
    words = [struct.unpack_from("<Q", buffer, block + f) for f in (POSTED, FILLED, DONE, FINISHED)]
    return max(words)[0]


class _Headers(dict[int, tuple[int, list[int]]]):
    """Where the headers of each slot are: this rank's, and those of its peers."""

    def __init__(self, mine: int, others: list[int]) -> None:
        self._mine, self._others = mine, others

    def __missing__(self, slot: int) -> tuple[int, list[int]]:
        at = HEADERS_AT + slot * HEADER_BYTES
        self[slot] = self._mine + at, [block + at for block in self._others]
        return self[slot]


class Channel:
    """One group's flags and headers, seen from member ``me``."""

    def __init__(
        self,
        hub: Hub,
        ranks: Sequence[int],
        me: int,
        blocks: Sequence[int],
        name: str,
        start: int,
    ) -> None:
        """``ranks``: world ranks of the members; ``blocks``: offsets of their control blocks;
        ``start``: the position before the first operation, the same on all members and beyond
        whatever stands in their flags."""
        self.hub, self.ranks, self.me, self.name = hub, list(ranks), me, name
        self.blocks = list(blocks)
        self.start = self.seq = start
        self._words, self._buffer = hub.words, hub.buffer
        self._room = start + NUM_HEADERS  # up to here the header slots are known to be free
        others = [i for i in range(len(ranks)) if i != me]
        self.peers = others
        self._peer_ranks = [ranks[i] for i in others]
        self._idxs = {
            field: [(blocks[i] + field) // 8 for i in others]
            for field in (POSTED, FILLED, DONE, FINISHED, LEFT)
        }
        self.posted_idxs = self._idxs[POSTED]
        self.filled_idxs = self._idxs[FILLED]
        self.finished_idxs = self._idxs[FINISHED]
        self.own = {field: (blocks[me] + field) // 8 for field in self._idxs}
        self.headers = _Headers(blocks[me], [blocks[i] for i in others])

    def payload(self, member: int, parity: int) -> int:
        """Offset of a member's small payload."""
        return self.blocks[member] + PAYLOAD_AT + parity * PAYLOAD_BYTES

    def value(self, seq: int, chunk: int = 0) -> int:
        """The word that says: operation ``seq`` has come to ``chunk``."""
        return (seq << CHUNK_BITS) + chunk

    def number(self, seq: int) -> int:
        """Which operation of the group ``seq`` is, for people."""
        return seq - self.start

    # -- writing ------------------------------------------------------------------------------

    def post(self, call: Call, offset: int = 0, mode: int = NONE, sizes: int = 0) -> bytes:
        """Enter the next operation, ``self.seq + 1``: write its header, then the flag.

        The data at ``offset`` must be in place. Returns the fingerprint.
        """
        seq = self.seq + 1
        if seq > self._room:
            self._make_room(seq)
        self.seq = seq
        print_ = seq.to_bytes(8, "little") + call.tail
        self._put(seq, print_ + WHERE.pack(mode, offset, sizes) + call.told)
        return print_

    def post_again(self, rest: bytes) -> bytes:
        """The same, of a header that is known but for its number, which is returned."""
        seq = self.seq + 1
        if seq > self._room:
            self._make_room(seq)
        self.seq = seq
        number = seq.to_bytes(8, "little")
        self._put(seq, number + rest)
        return number

    def _put(self, seq: int, header: bytes) -> None:
        slot = self.headers[seq % NUM_HEADERS][0]
        self._buffer[slot : slot + len(header)] = header
        self._words[self.own[POSTED]] = seq << CHUNK_BITS

    def publish(self, field: int, seq: int, chunk: int = 0) -> None:
        self._words[self.own[field]] = (seq << CHUNK_BITS) + chunk

    def ring(self, field: int, seq: int, chunk: int) -> None:
        """Wake who sleeps until this rank has come to ``(seq, chunk)``, where ranks sleep."""

    def flags(self, field: int) -> list[int]:
        """The addresses of all members' words."""
        return [self.hub.address + block + field for block in self.blocks]

    def sleepers(self) -> tuple[int, int]:
        """The addresses of the words that say whether somebody sleeps; 0 where nobody does."""
        return 0, 0

    def _make_room(self, seq: int) -> None:
        """A header slot is free again when every member has finished what it was used for."""
        if seq - NUM_HEADERS > self.start:
            need = self.need(FINISHED, seq - NUM_HEADERS, own=True)
            self.hub.wait(need, None)
        words = [self._words[i] for i in (*self._idxs[FINISHED], self.own[FINISHED])]
        self._room = max(self.start, min(words) >> CHUNK_BITS) + NUM_HEADERS

    # -- waiting ------------------------------------------------------------------------------

    def need(
        self,
        field: int,
        seq: int,
        chunk: int = 0,
        members: Sequence[int] | None = None,
        own: bool = False,
    ) -> Flags:
        """All peers (or ``members``) have come to ``(seq, chunk)`` in ``field``."""
        idxs, ranks = self._idxs[field], self._peer_ranks
        if members is not None:
            idxs = [(self.blocks[i] + field) // 8 for i in members]
            ranks = [self.ranks[i] for i in members]
        if own:
            idxs, ranks = [*idxs, self.own[field]], [*ranks, self.ranks[self.me]]
        verb = "arrived" if field == POSTED else "done their part"

        def text(missing: list[int]) -> str:
            slot = self.headers[seq % NUM_HEADERS][0] + FINGERPRINT + WHERE.size
            mine = told_text(self._buffer[slot : slot + HEADER_BYTES - FINGERPRINT - WHERE.size])
            have = "has" if len(missing) == 1 else "have"
            who = f"{name_ranks(missing)} {have} not {verb}" if missing else "all have arrived"
            return f"{mine} (operation {self.number(seq)} of group {self.name}); {who}"

        value = self.value(seq, chunk)
        mine = self.own[field] if own else -1
        return Flags(self._words, idxs, ranks, value, text, field == FINISHED, mine)

    # -- reading ------------------------------------------------------------------------------

    def same(self, seq: int, fingerprint: bytes) -> bool:
        """Do all peers' headers equal mine, byte for byte?"""
        buffer = self._buffer
        for slot in self.headers[seq % NUM_HEADERS][1]:  # noqa: SIM110  (speed)
            if buffer[slot : slot + FINGERPRINT] != fingerprint:
                return False
        return True

    def same_and_there(self, seq: int, number: bytes, known: Sequence[bytes]) -> bool:
        """Do they, and does each one's data lie where it is known to? ``known``: by peer."""
        buffer = self._buffer
        for slot, rest in zip(self.headers[seq % NUM_HEADERS][1], known, strict=True):
            if buffer[slot : slot + KNOWN] != number + rest:
                return False
        return True

    def verify(self, seq: int, last: bool = False) -> None:
        """Compare the headers of all members, which have arrived. Raises on every member alike.
        ``last``: it is the last meeting, to which those who have left before need not come; what
        stands here of one that left early is its own last meeting, and fits nothing else."""
        there = self.present(seq)
        if not last and len(there) < len(self.peers):
            self.mismatch(seq, "number of calls")
        self.need(POSTED, seq, members=there)()  # raises where one has gone on to a later group
        slots = [self._slot(i, seq) for i in (self.me, *there)]
        field = difference([self._buffer[s : s + FINGERPRINT] for s in slots])
        if field:
            self.mismatch(seq, field)

    def mismatch(self, seq: int, field: str, detail: str = "") -> None:
        """Raise ``CollectiveMismatch`` with everybody's call, and where calls began to be apart."""
        calls = {self.ranks[i]: self._call_at(i, seq) for i in range(len(self.blocks))}
        text = mismatch_text(f"group {self.name}", self.number(seq), field, calls)
        more = [part for part in (detail, self._first_apart(seq)) if part]
        raise CollectiveMismatch("\n".join([text, *more]))

    def _call_at(self, member: int, seq: int) -> str:
        last = self.left_at(member)
        if last is not None and last < seq:
            return f"nothing more: it has left the group after {self.number(last)} operations"
        if self._words[self._slot(member, seq) // 8] != seq:
            return "nothing yet"
        return self._told(member, seq)

    def _first_apart(self, seq: int) -> str:
        """The first operation on record that ranks called alike, but from different lines. That is
        legal, and it is what a skipped or repeated call looks like."""
        for past in range(max(self.start + 1, seq - NUM_HEADERS + 1), seq):
            members = range(len(self.blocks))
            if any(self._words[self._slot(i, past) // 8] != past for i in members):
                continue  # written over since
            calls = {self.ranks[i]: self._told(i, past) for i in members}
            if len({text.rpartition(" at ")[2] for text in calls.values()}) > 1:
                head = f"Before that, operation {self.number(past)} came from different lines:"
                return "\n".join([head, *list_calls(calls)])
        return ""

    # -- leaving ------------------------------------------------------------------------------

    def left_at(self, member: int) -> int | None:
        """The last operation of a member that has left without meeting the others, or whose process
        is gone; else None."""
        block = self.blocks[member]
        word = self._words[(block + LEFT) // 8] >> CHUNK_BITS
        if self.start <= word <= self.seq + LEAD:
            return word
        if member != self.me and self.hub.detector.has_vanished(self.ranks[member]):
            return max(self.start, self._words[(block + POSTED) // 8] >> CHUNK_BITS)
        return None

    def present(self, seq: int) -> list[int]:
        """The peers that have not left before operation ``seq`` without meeting the others."""
        left = [(i, self.left_at(i)) for i in self.peers]
        return [i for i, last in left if last is None or last >= seq]

    def check_counts(self, seq: int) -> None:
        """Who has left made as many calls as this rank, whose last one was ``seq``."""
        if any(self.left_at(i) not in (None, seq) for i in self.peers):
            self.mismatch(seq + 1, "number of calls")

    def where(self, seq: int) -> list[tuple[int, int, int]]:
        """(offset, mode, sizes) of every member's data."""
        found = []
        for i in range(len(self.blocks)):
            at = self._slot(i, seq) + FINGERPRINT
            mode, offset, sizes = WHERE.unpack_from(self._buffer, at)
            found.append((offset, mode, sizes))
        return found

    def _slot(self, member: int, seq: int) -> int:
        return self.blocks[member] + HEADERS_AT + (seq % NUM_HEADERS) * HEADER_BYTES

    def _told(self, member: int, seq: int) -> str:
        at = self._slot(member, seq) + FINGERPRINT + WHERE.size
        return told_text(self._buffer[at : self._slot(member, seq) + HEADER_BYTES])


class LastMeeting:
    """A ``Need``: every peer has entered operation ``seq``, the last one, or has left before."""

    def __init__(self, channel: Channel, seq: int) -> None:
        self._channel, self._seq = channel, seq

    def _flags(self) -> Flags:
        return self._channel.need(POSTED, self._seq, members=self._channel.present(self._seq))

    def __call__(self) -> bool:
        return self._flags()()

    def what(self) -> str:
        return self._flags().what()

    def edges(self) -> list[Edge]:
        return self._flags().edges()


class OversubscribedChannel(Channel):
    """A channel of ranks that are more than cores (``oversubscription``): who waits sleeps."""

    def __init__(self, hub: Hub, ranks: Sequence[int], me: int, blocks: Sequence[int], *rest: Any):
        super().__init__(hub, ranks, me, blocks, *rest)
        self.bell = Bell(hub, blocks[0])

    def _put(self, seq: int, header: bytes) -> None:
        super()._put(seq, header)
        self.bell.ring(self.posted_idxs, self.value(seq))

    def publish(self, field: int, seq: int, chunk: int = 0) -> None:
        super().publish(field, seq, chunk)
        self.bell.ring(self._idxs[field], self.value(seq, chunk))

    def ring(self, field: int, seq: int, chunk: int) -> None:
        self.bell.ring(self._idxs[field], self.value(seq, chunk))

    def sleepers(self) -> tuple[int, int]:
        first = self.hub.address + self.blocks[0]
        return first + FOR_ALL_AT, first + FOR_ANY_AT

    def need(
        self,
        field: int,
        seq: int,
        chunk: int = 0,
        members: Sequence[int] | None = None,
        own: bool = False,
    ) -> Flags:
        flags = super().need(field, seq, chunk, members, own)
        flags.bell, flags.for_all = self.bell, members is None
        return flags


def open_channel(hub: Hub, *args: Any) -> Channel:
    """The channel of a group; the arguments are those of ``Channel``."""
    return (Channel if hub.futex is None else OversubscribedChannel)(hub, *args)
