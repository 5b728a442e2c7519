"""Ranks on several hosts agree on who goes on. Pure: words come in, words go out.

Each member tells all others a ``Word`` whenever what it has to say has changed: whom it knows to be
lost, and whether it has heard all the rest (``complete``). What others know to be lost becomes its
own knowledge, so these sets only grow. Once all that are not lost say the same and are complete,
the members are decided; who has decided says so and says nothing else of this round, and who hears
that decides the same. This is flooding set agreement (Lynch, "Distributed Algorithms", 1996,
section 6.2) without rounds: two ranks that decide have seen each other's last set, or one of them
counts for lost with the other. ``complete`` makes sure of one thing more: when anybody decides, all
members have read all that others have sent to them before they came here.

The end of a process is certain (``sure``): its kernel, or who watches it, has said so. A rank that
is only silent may live behind a network that is cut, and its side may count this one for lost. So
with silent ranks only that side goes on which has more than half of all members, or half of them
and the first one. (A rank that was cut off and whose links are then reset, as a firewall may do,
cannot be told from one that has ended.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

_HEAD = struct.Struct("<IIQQ?QQ")  # checksum, ranks, round, start, complete; decided: round, start


@dataclass(frozen=True)
class Decision:
    """Who goes on after round ``number``, and beyond which value their flags begin."""

    number: int
    members: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Word:
    """What a rank says in ``round``. ``decided``: the last decision that it knows of."""

    round: int
    start: int = 0
    lost: frozenset[int] = frozenset()
    sure: frozenset[int] = frozenset()
    complete: bool = False
    decided: Decision | None = None

    def encode(self, num_ranks: int) -> bytes:
        d = self.decided or Decision(0, (), 0)
        size = _width(num_ranks)
        body = b"".join(_bits(s, size) for s in (self.lost, self.sure, d.members))
        body = _HEAD.pack(
            0, num_ranks, self.round, self.start, self.complete, d.number, d.start
        ) + (body)
        return zlib.crc32(body[4:]).to_bytes(4, "little") + body[4:]


def room(num_ranks: int) -> int:
    """Bytes of an encoded word."""
    return _HEAD.size + 3 * _width(num_ranks)


def decode(data: bytes, num_ranks: int) -> Word:
    """The word. Raises ``ValueError`` where it is none, or not whole."""
    if len(data) != room(num_ranks):
        raise ValueError(f"{len(data)} bytes")
    check, ranks, number, start, complete, last, begin = _HEAD.unpack_from(data)
    if check != zlib.crc32(data[4:]) or ranks != num_ranks:
        raise ValueError("a checksum that is wrong")
    size, at = _width(num_ranks), _HEAD.size
    lost, sure, members = (_ranks(data[at + i * size : at + (i + 1) * size]) for i in range(3))
    decided = Decision(last, tuple(members), begin) if last else None
    return Word(number, start, frozenset(lost), frozenset(sure), complete, decided)


def _width(num_ranks: int) -> int:
    return -(-num_ranks // 8)


def _bits(ranks: Iterable[int], size: int) -> bytes:
    return sum(1 << r for r in ranks).to_bytes(size, "little")


def _ranks(data: bytes) -> list[int]:
    value = int.from_bytes(data, "little")
    return [r for r in range(value.bit_length()) if value >> r & 1]


@dataclass
class Agreement:
    """Round ``number`` among ``ranks``, as ``me`` sees it. ``start``: of its own flags."""

    me: int
    ranks: Sequence[int]
    number: int
    start: int
    last: Decision | None = None
    lost: set[int] = field(default_factory=set)
    sure: set[int] = field(default_factory=set)
    said: dict[int, Word] = field(default_factory=dict)
    decision: Decision | None = None
    excluded: bool = False  # others go on without this rank
    refused: bool = False  # nobody here may go on: others may do so elsewhere

    def lose(self, rank: int, sure: bool) -> None:
        """A rank will not come: its process has ended for ``sure``, or it is only silent."""
        if self.decision is None:
            self.lost.add(rank)
            if sure:
                self.sure.add(rank)

    def hear(self, rank: int, word: Word) -> None:
        """``rank`` says this. Words of one rank come in their order; some may be left out."""
        if self.decision is not None or rank in self.lost or rank not in self.ranks:
            return
        decided = word.decided
        if decided is not None and decided.number >= self.number:
            if decided.number == self.number and self.me in decided.members:
                self.decision = decided
            else:
                self.excluded = True
        elif word.round == self.number:
            if self.me in word.lost:
                self.excluded = True
                return
            self.said[rank] = word
            self.lost |= word.lost
            self.sure |= word.sure

    def settle(self) -> None:
        """Decide, if that can be done now."""
        if self.decision is not None or self.excluded or not self.complete:
            return
        same = self.lost, self.sure, True
        words = [self.said[r] for r in self._left() if r != self.me]
        if any((w.lost, w.sure, w.complete) != same for w in words):
            return
        members = self._left()
        if self.lost <= self.sure or is_quorum(members, self.ranks):
            start = max([self.start, *(w.start for w in words)])
            self.decision = Decision(self.number, tuple(members), start)
        else:
            self.refused = True

    def word(self) -> Word:
        """What to tell the others now."""
        if self.decision is not None:
            return Word(self.number, self.start, decided=self.decision)
        lost, sure = frozenset(self.lost), frozenset(self.sure)
        return Word(self.number, self.start, lost, sure, self.complete, self.last)

    @property
    def complete(self) -> bool:
        return not self.missing()

    def missing(self) -> list[int]:
        """Who has neither come nor ended."""
        return [r for r in self._left() if r != self.me and r not in self.said]

    def _left(self) -> list[int]:
        return [r for r in self.ranks if r not in self.lost]


def is_quorum(members: Collection[int], ranks: Sequence[int]) -> bool:
    """Whether no other side can be one, too."""
    twice = 2 * len(members)
    return twice > len(ranks) or (twice == len(ranks) and ranks[0] in members)
