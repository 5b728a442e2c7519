"""A black box read: bytes to data. It may be written at the same time, or its rank may have been
killed in the middle of a word: what is not whole is left out.

Knows the layout (``comm.blackbox``); decides nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..comm.calls.header import DTYPES, OPS
from ..comm.job import blackbox as at
from ..comm.job.blackbox import Box

_WORDS = struct.Struct(f"<{at.NUM_WORDS}q")
_TEXT = struct.Struct("<IH")
_MEMBERS = 1 << 16  # of a group, at most: a damaged text may name any number of them
SHOWN = 64  # operations of a rank that are kept for people
UNDER_WAY, ENDED, FAILED, BROKEN_OFF = "under way", "ended", "failed", "broken off"


@dataclass(frozen=True)
class Operation:
    """One that a rank has begun. Times are nanoseconds of its host's clock."""

    number: int
    begun: int
    ended: int  # 0: it has not, as far as is known
    seq: int  # which collective of its group it is; 0 for a message
    verb: str
    numel: int
    dtype: str
    group: str
    peer: int  # the rank at the other end, or the root; -1: none
    text: str  # the call and its line
    label: str = ""  # what it belongs to (a bucket)
    state: str = ENDED

    @property
    def shown(self) -> str:
        return f"{self.label}: {self.text}" if self.label else self.text


@dataclass(frozen=True)
class Words:
    """What one rank says of itself in numbers (times in nanoseconds, 0: never)."""

    pid: int
    beat: int
    step: int
    step_at: int
    samples: int
    waited: int
    waits_since: int
    ended: int  # 1 + its exit code, 0 while it runs
    ended_at: int
    stacks_fd: int

    def waited_by(self, now: int) -> int:
        """For how long it has waited for others until ``now``, also while it still waits."""
        return self.waited + (max(0, now - self.waits_since) if self.waits_since else 0)


@dataclass(frozen=True)
class Rank:
    """One rank as its box shows it: ``operations`` from the oldest to the newest."""

    rank: int
    words: Words
    said: str
    groups: dict[str, tuple[int, ...]]
    operations: list[Operation]

    @property
    def last(self) -> Operation | None:
        return self.operations[-1] if self.operations else None

    @property
    def alive_at(self) -> int:
        """When it last gave a sign of life by itself."""
        last = self.last
        times = [0] if last is None else [last.begun, abs(last.ended)]
        return max(self.words.beat, self.words.step_at, *times)


def read_words(box: Box, rank: int) -> Words:
    """The numbers of one rank."""
    words = _WORDS.unpack_from(box.buffer, box.at(rank))
    return Words(*(words[i] for i in (
        at.PID, at.BEAT, at.STEP, at.STEP_AT, at.SAMPLES, at.WAITED, at.WAITS_SINCE, at.ENDED,
        at.ENDED_AT, at.STACKS_FD,
    )))  # fmt: skip


def read_rank(box: Box, rank: int, count: int = SHOWN) -> Rank:
    """One rank with its last ``count`` operations."""
    texts = Texts(box, rank)
    start = box.at(rank) + at.RECORDS_AT
    raw = box.buffer[start : start + at.NUM_RECORDS * at.RECORD_BYTES] if count else b""
    found = [r for r in at.RECORD.iter_unpack(raw) if r[0] and r[0] == r[-1]]
    found.sort()
    operations = [texts.operation(r) for r in found[-count:]]
    return Rank(
        rank, read_words(box, rank), _text_at(box, box.at(rank) + at.SAID_AT, at.SAID_BYTES)[1],
        texts.groups(), broken_off(operations),
    )  # fmt: skip


def read_all(box: Box, count: int = SHOWN) -> list[Rank]:
    """All ranks of the box."""
    return [read_rank(box, r, count) for r in range(box.first, box.first + box.num_ranks)]


def broken_off(operations: list[Operation]) -> list[Operation]:
    """Mark those without an end that later collectives of their group have left behind: a group
    has one order, so an error has ended them."""
    newest: dict[str, int] = {}
    out = []
    for op in reversed(operations):
        state = ENDED if op.ended > 0 else FAILED if op.ended < 0 else UNDER_WAY
        if state == UNDER_WAY and op.seq and op.seq < newest.get(op.group, 0):
            state = BROKEN_OFF
        if op.seq and op.ended > 0:
            newest[op.group] = max(newest.get(op.group, 0), op.seq)
        out.append(op if state == op.state else Operation(**{**op.__dict__, "state": state}))
    return out[::-1]


@dataclass
class Texts:
    """The texts that the records of one rank name, each read once while it stands."""

    box: Box
    rank: int
    _known: dict[int, str] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def operation(self, record: tuple) -> Operation:
        number, begun, ended, seq, mark, label, _ = record
        numel, text, group, peer, op, dtype, _, _ = at.MARK.unpack(mark)
        verb = OPS[op] if op < len(OPS) else "?"
        name = DTYPES[dtype].name if dtype < len(DTYPES) else ""
        told = self.text(text) or f"{verb}({name}[{numel}])"
        return Operation(
            number, begun, ended, seq, verb, numel, name, self.group(group), peer, told,
            self.text(label),
        )  # fmt: skip

    def text(self, number: int) -> str:
        """The text with this number; "" where another one has taken its place."""
        if number == 0:
            return ""
        found = self._known.get(number)
        if found is None:
            start = self.box.at(self.rank) + at.TEXTS_AT
            place = start + number % at.NUM_TEXTS * at.TEXT_BYTES
            there, text = _text_at(self.box, place, at.TEXT_BYTES)
            found = text if there == number else ""
            if len(self._known) > 4 * at.NUM_TEXTS:
                self._known.clear()
            if found:
                self._known[number] = found
        return found

    def group(self, number: int) -> str:
        """The name of a group."""
        found = self._names.get(number)
        if found is None:
            start = self.box.at(self.rank) + at.GROUPS_AT
            place = start + number % at.NUM_GROUPS * at.TEXT_BYTES
            there, text = _text_at(self.box, place, at.TEXT_BYTES)
            found = text.partition("\n")[0] if there == number else f"group {number}"
            if there == number:
                self._names[number] = found
        return found

    def groups(self) -> dict[str, tuple[int, ...]]:
        """The members of the groups that are still known, by name."""
        found: dict[str, tuple[int, ...]] = {}
        start = self.box.at(self.rank) + at.GROUPS_AT
        rows = [
            _text_at(self.box, start + i * at.TEXT_BYTES, at.TEXT_BYTES)
            for i in range(at.NUM_GROUPS)
        ]
        for number, text in sorted(rows):
            if number:
                name, _, members = text.partition("\n")
                found[name] = numbers(members)
        return found


class Follower:
    """Reads the operations of one rank as they come, each once."""

    def __init__(self, box: Box, rank: int) -> None:
        self.box, self.rank, self.next = box, rank, 1
        self.texts = Texts(box, rank)
        self._start = box.at(rank) + at.RECORDS_AT

    def _record(self, number: int) -> tuple:
        place = self._start + number % at.NUM_RECORDS * at.RECORD_BYTES
        return at.RECORD.unpack_from(self.box.buffer, place)

    def newest(self) -> int:
        """The number of the last operation that was begun, without reading the others."""
        low = self.next - 1  # was there, or nothing was
        if self._record(low)[0] > low:
            low = self._record(low)[0]  # it was overtaken
        step = 1
        while step < at.NUM_RECORDS and self._record(low + step)[0] == low + step:
            low += step
            step *= 2
        while step:
            if self._record(low + step)[0] == low + step:
                low += step
            step //= 2
        return low

    def new(self, most: int = at.NUM_RECORDS) -> tuple[list[Operation], int]:
        """What was begun since, up to the first that has not ended (it comes next time, or when
        ``SHOWN`` more were begun), and how many were lost meanwhile."""
        found: list[Operation] = []
        lost = 0
        while len(found) < most:
            record = self._record(self.next)
            number = record[0]
            if number > self.next:  # it has gone round: go on with what is still there for sure
                behind = max(self.newest() - at.NUM_RECORDS // 2, self.next + 1)
                lost += behind - self.next
                self.next = behind
                continue
            if number < self.next or record[-1] != number:
                break
            if record[2] == 0 and self._record(number + SHOWN)[0] < number + SHOWN:
                break  # else so much was begun since that it will not end any more
            found.append(self.texts.operation(record))
            self.next += 1
        return found, lost


def numbers(text: str) -> tuple[int, ...]:
    """What ``blackbox.runs`` has written; () where it was cut, or is damaged."""
    found: list[int] = []
    try:
        for part in text.split(",") if text else ():
            ends, _, step = part.partition(":")
            first, dash, last = ends.partition("-")
            ends_at = int(last if dash else first)
            if ends_at > _MEMBERS or len(found) > _MEMBERS:
                return ()
            found += range(int(first), ends_at + 1, abs(int(step or 1)))
    except ValueError:
        return ()
    return tuple(found)


def _text_at(box: Box, place: int, limit: int) -> tuple[int, str]:
    number, length = _TEXT.unpack_from(box.buffer, place)
    place += _TEXT.size
    data = box.buffer[place : place + min(length, limit - _TEXT.size)]
    return number, "\n".join(map(printable, data.decode("utf-8", "replace").split("\n")))


def printable(text: str) -> str:
    """``text`` on one line of a terminal, whose cursor it does not move."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def opened(path: str) -> Box:
    """The black box in a file. Raises ``CommError`` for what is none, ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Box(fd, writable=False)
    except BaseException:
        os.close(fd)
        raise


def each(box: Box) -> Iterator[int]:
    """The ranks of a box."""
    yield from range(box.first, box.first + box.num_ranks)


def about(box: Box) -> dict[str, Any]:
    return box.about
