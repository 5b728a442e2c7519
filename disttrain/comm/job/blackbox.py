"""The black box: what each rank of a host did last, in memory that the launcher owns.

It outlives whoever dies: the ranks (they only map it), and, where it is a file, the launcher, too.

    page 0        header: magic, version, number of ranks, the first one's number, two clocks read
                  at one moment, a JSON text about the job
    then, per rank, ``RANK_BYTES``:
        words     pid, steps, samples, time spent waiting ... (the names below)
        said      what the rank waits for, where that has been found out
        groups    the last ``NUM_GROUPS`` groups: name and members
        texts     the last ``NUM_TEXTS`` different calls, with the lines that they come from
        records   the last ``NUM_RECORDS`` operations, begun and ended, a cache line for each

A record begins and ends with its number: where these differ its rank was killed while it wrote. An
operation costs its rank two reads of the clock and two short writes (under a microsecond). Times
are nanoseconds of the host's monotonic clock, which all its processes share.

Ranks that no launcher has started, and simulated ones, have a small private box that nobody reads,
so that operations need not ask whether there is one. Knows bytes; no arrays, no transport. What the
records mean is read by ``disttrain.watch``.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import context, settings
from ...errors import CommError
from ...steps import SLOT as STEPS_SLOT
from ...steps import Steps

MAGIC = 0x64747261696E6262
VERSION = 1
PAGE = 4096
NUM_RECORDS, RECORD_BYTES = 512, 64
NUM_TEXTS, NUM_GROUPS, TEXT_BYTES = 512, 32, 256
SAID_AT, SAID_BYTES = 1024, 1024
GROUPS_AT = PAGE
TEXTS_AT = GROUPS_AT + NUM_GROUPS * TEXT_BYTES
RECORDS_AT = TEXTS_AT + NUM_TEXTS * TEXT_BYTES
RANK_BYTES = RECORDS_AT + NUM_RECORDS * RECORD_BYTES
HEADER = struct.Struct("<QIIIIqq")  # magic, version, ranks, first rank, spare, monotonic, wall (ns)
ABOUT_AT = 64

# The words of a rank.
PID, BEAT, STEP, STEP_AT, SAMPLES, WAITED, WAITS_SINCE, ENDED, ENDED_AT, STACKS_FD = range(10)
BEFORE = 10  # the number of the last operation of an earlier process of the same rank
NUM_WORDS = 16

# A record: number, begun, ended (0: under way; negative: with an error), the number of the
# collective in its group (0: a message), what was called (``MARK``), label, number again.
RECORD = struct.Struct("<QqqQ20sIQ")
# Elements, number of the text, group, rank of the peer or root (-1: none), operation, element type,
# reduce operator + 1, flags: the codes of ``header``.
MARK = struct.Struct("<qIHhBBBB")
_END_WORD = 2  # of a record
_OWN_AT = NUM_WORDS * 8  # where records begin in memory of a recorder's own
# Where records begin, and their words that say when they ended, by where the first one begins.
_RECORDS = {
    start: (
        tuple(range(start, start + NUM_RECORDS * RECORD_BYTES, RECORD_BYTES)),
        tuple((start >> 3) + i * (RECORD_BYTES >> 3) + _END_WORD for i in range(NUM_RECORDS)),
    )
    for start in (RECORDS_AT, _OWN_AT)
}
_TEXT = struct.Struct("<IH")

BOX_SLOT = "comm.blackbox"  # the slot of a rank's context where its recorder is
BOX_FD = settings.BLACKBOX_FD.name  # the descriptor that a rank inherits

_now = time.monotonic_ns


class Recorder:
    """A rank's end: it writes here what it does. ``buffer``: ``RANK_BYTES`` of it at ``at``; None
    for memory of its own that keeps no texts."""

    __slots__ = (
        *("_buffer", "_groups", "_next", "_put", "_texts", "_waited", "at", "label", "steps"),
        "words",
    )

    def __init__(self, buffer: object = None, at: int = 0) -> None:
        self.label = 0  # the number of a text that says what the next operations belong to
        self._open(buffer, at)
        self.steps = Steps(self.words, STEP, STEP_AT, SAMPLES)

    def _open(self, buffer: Any, at: int) -> None:
        kept = buffer is not None
        self._buffer, self.at = buffer, at
        if not kept:
            buffer = bytearray(_OWN_AT + NUM_RECORDS * RECORD_BYTES)
        view = memoryview(buffer)
        size = RANK_BYTES if kept else len(buffer)
        self.words = view[at : at + size].cast("q")
        self._put: Callable[..., None] = partial(RECORD.pack_into, view[at : at + size])
        used = _numbers_used(view[at : at + size]) if kept and self.words[PID] else (0, 0, 0)
        self._next = _places(used[0] + 1, RECORDS_AT if kept else _OWN_AT)
        self._texts, self._groups = (itertools.count(n + 1).__next__ for n in used[1:])
        self.words[BEFORE], self._waited = used[0], self.words[WAITED]

    def begin(self, seq: int, mark: bytes) -> int:
        """An operation begins: what ``end`` is to be told."""
        number, at, word = self._next()
        self._put(at, number, _now(), 0, seq, mark, self.label, number)
        return word

    def end(self, word: int) -> None:
        """It has ended."""
        self.words[word] = _now()

    def fail(self, word: int) -> None:
        """It has ended with an error."""
        self.words[word] = -_now()

    def beat(self) -> None:
        """The rank waits, and is alive."""
        self.words[BEAT] = _now()

    def waits(self) -> int:
        """The rank begins to wait: when. ``waited`` gets it back."""
        since = self.words[WAITS_SINCE] = _now()
        return since

    def waited(self, since: int) -> None:
        words = self.words
        words[WAITS_SINCE] = 0
        words[WAITED] = self._waited = self._waited + _now() - since

    def say(self, text: str) -> None:
        """What the rank waits for, for people; empty where it does not."""
        if self._buffer is not None:
            self._write(SAID_AT, 0, text, SAID_BYTES)

    def text(self, text: str) -> int:
        """The number under which records may name ``text``; 0 where none is kept."""
        if self._buffer is None:
            return 0
        number = self._texts() & 0xFFFFFFFF
        self._write(TEXTS_AT + number % NUM_TEXTS * TEXT_BYTES, number, text, TEXT_BYTES)
        return number

    def group(self, name: str, ranks: Sequence[int]) -> int:
        """The number under which records may name a group of these (global) ranks."""
        if self._buffer is None:
            return 0
        number = self._groups() & 0xFFFF
        text = f"{name}\n{runs(ranks)}"
        self._write(GROUPS_AT + number % NUM_GROUPS * TEXT_BYTES, number, text, TEXT_BYTES)
        return number

    def _write(self, at: int, number: int, text: str, limit: int) -> None:
        data = clipped(text, limit - _TEXT.size)
        at += self.at
        _TEXT.pack_into(self._buffer, at, 0, 0)  # nobody takes a half text for a whole one
        self._buffer[at + _TEXT.size : at + _TEXT.size + len(data)] = data
        _TEXT.pack_into(self._buffer, at, number, len(data))

    def part(self) -> None:
        """In a process forked from the rank: write nothing into its box."""
        self._open(None, 0)
        self.steps.words = self.words


def _places(first: int, start: int) -> Callable[[], tuple[int, int, int]]:
    """Gives the number of each next record, where it begins, and its word that says when it ended;
    at once, since every operation asks."""
    at, words = _RECORDS[start]
    skipped = first % NUM_RECORDS
    found = zip(itertools.count(first - skipped), itertools.cycle(at), itertools.cycle(words))
    for _ in range(skipped):
        next(found)
    return found.__next__


def _numbers_used(part: memoryview) -> tuple[int, int, int]:
    """The last numbers of operations, texts and groups of an earlier process of the same rank,
    after whose records this one's stand. What it had under way was broken off."""
    last, words = 0, part.cast("q")
    for at in range(RECORDS_AT, RANK_BYTES, RECORD_BYTES):
        number, begun, ended = RECORD.unpack_from(part, at)[:3]
        last = max(last, number)
        if begun and not ended:
            words[(at >> 3) + _END_WORD] = -_now()
    for word in (BEAT, STEP_AT, WAITS_SINCE, ENDED, ENDED_AT, STACKS_FD):
        words[word] = 0
    texts = range(TEXTS_AT, RECORDS_AT, TEXT_BYTES)
    groups = range(GROUPS_AT, TEXTS_AT, TEXT_BYTES)
    return (
        last,
        max(_TEXT.unpack_from(part, at)[0] for at in texts),
        max(_TEXT.unpack_from(part, at)[0] for at in groups),
    )


def clipped(text: str, limit: int) -> bytes:
    """``text`` in at most so many bytes: the middle is what a reader misses least."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data
    half = (limit - 5) // 2
    return data[:half] + b" ... " + data[-half:]


def runs(ranks: Sequence[int]) -> str:
    """``0-3,8-14:2`` for 0 1 2 3 8 10 12 14: ranks in their order, in few letters."""
    parts, i, n = [], 0, len(ranks)
    while i < n:
        step = ranks[i + 1] - ranks[i] if i + 1 < n else 1
        j = i
        while j + 1 < n and ranks[j + 1] - ranks[j] == step:
            j += 1
        if j == i or step < 1:
            parts.append(str(ranks[i]))
            i += 1
        else:
            parts.append(f"{ranks[i]}-{ranks[j]}" + (f":{step}" if step > 1 else ""))
            i = j + 1
    return ",".join(parts)


class Box:
    """The black box of the ranks ``first .. first + num_ranks - 1`` of a job."""

    def __init__(self, fd: int, writable: bool = True) -> None:
        """Map what is there. Raises ``CommError`` where ``fd`` is no black box."""
        self.fd = fd
        size = os.fstat(fd).st_size
        if size < PAGE:
            raise CommError(f"black box: {size} bytes; it is cut short, or none")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self.buffer = mmap.mmap(fd, size, access=access)
        magic, version, self.num_ranks, self.first, _, self.monotonic, self.wall = (
            HEADER.unpack_from(self.buffer)
        )
        if magic != MAGIC or size < PAGE + self.num_ranks * RANK_BYTES:
            self.buffer.close()
            raise CommError("black box: the file is none, or was cut short")
        if version != VERSION:
            self.buffer.close()
            raise CommError(
                f"black box: of version {version}; this disttrain reads version {VERSION}. Read it "
                "with the disttrain that has written it"
            )

    @classmethod
    def create(cls, num_ranks: int, about: dict[str, Any], first: int = 0, fd: int = -1) -> Box:
        """A fresh one; ``about``: of the job, for readers. ``fd``: the empty file that it shall be,
        which is owned from now on; else it has no name.

        A file gets all its blocks now: a full disk raises ``OSError`` here, and does not strike a
        rank that writes.
        """
        size = PAGE + num_ranks * RANK_BYTES
        if fd >= 0:
            os.posix_fallocate(fd, 0, size)
        else:
            fd = os.memfd_create("disttrain-blackbox", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        text = json.dumps(about).encode()[: PAGE - ABOUT_AT - 4]
        head = HEADER.pack(MAGIC, VERSION, num_ranks, first, 0, _now(), time.time_ns())
        os.pwrite(fd, len(text).to_bytes(4, "little") + text, ABOUT_AT)
        os.pwrite(fd, head, 0)
        return cls(fd)

    @property
    def about(self) -> dict[str, Any]:
        """What its maker has said of the job."""
        length = int.from_bytes(self.buffer[ABOUT_AT : ABOUT_AT + 4], "little")
        try:
            found = json.loads(self.buffer[ABOUT_AT + 4 : ABOUT_AT + 4 + length])
        except ValueError:  # it was too long
            return {}
        return found if isinstance(found, dict) else {}

    def at(self, rank: int) -> int:
        """Where the part of ``rank`` (its number in the job) begins."""
        return PAGE + (rank - self.first) * RANK_BYTES

    def recorder(self, rank: int) -> Recorder:
        """This process is that rank: its end of the box."""
        made = Recorder(self.buffer, self.at(rank))
        made.words[PID] = os.getpid()
        return made

    def ended(self, rank: int, code: int) -> None:
        """Note that a rank has ended, as a shell would say it."""
        at = self.at(rank)
        words = memoryview(self.buffer)[at : at + NUM_WORDS * 8].cast("q")
        words[ENDED_AT], words[ENDED] = _now(), code + 1
        words.release()

    def operations(self, rank: int) -> int:
        """How many operations the process that is this rank has begun."""
        at = self.at(rank)
        numbers = (
            RECORD.unpack_from(self.buffer, at + RECORDS_AT + i * RECORD_BYTES)[0]
            for i in range(NUM_RECORDS)
        )
        (before,) = struct.unpack_from("<q", self.buffer, at + 8 * BEFORE)
        return max(numbers) - before

    def close(self) -> None:
        """Let go of it; who holds it otherwise keeps it."""
        try:
            self.buffer.close()
        except BufferError:  # a recorder writes there
            pass
        os.close(self.fd)


def recorder() -> Recorder:
    """The calling rank's."""
    return context.current().slot(BOX_SLOT, _make)


def _make() -> Recorder:
    """A rank that dtrun has started as another program finds its box by the descriptor."""
    text, me = settings.BLACKBOX_FD.text(), context.current()
    if not text.isdigit() or type(me.waiter) is not context.Waiter:
        return Recorder()
    try:
        box = Box(os.dup(int(text)))
        rank = int(settings.RANK.text())
    except (OSError, ValueError, CommError):
        return Recorder()
    if not box.first <= rank < box.first + box.num_ranks:
        box.close()
        return Recorder()
    words = memoryview(box.buffer)[box.at(rank) : box.at(rank) + 8].cast("q")
    taken = words[PID] not in (0, os.getpid())
    words.release()
    mine = None if taken else box.recorder(rank)  # else this is a child of the rank
    box.close()
    return Recorder() if mine is None else adopt(mine)


def adopt(mine: Recorder) -> Recorder:
    """Let the calling rank record there, and show that it is alive while it waits."""
    me = context.current()
    me.slots[BOX_SLOT], me.slots[STEPS_SLOT] = mine, mine.steps
    me.waiter.interrupts.append(mine.beat)
    return mine


def _after_fork() -> None:
    mine = context.current().slots.get(BOX_SLOT)
    if mine is not None:
        mine.part()


os.register_at_fork(after_in_child=_after_fork)
