"""Ranks that wait for each other in calls that do not belong together, found in shared memory.

A rank that has waited for a while publishes which flags (words of other ranks) it awaits. A rank
is *stuck* when it waits, and one of the flags it misses belongs to a rank that is stuck too: the
largest such set is found by taking out, again and again, ranks that miss no flag of a member.
Ranks that have left for good count as stuck from the start. A verdict needs two looks with the
same waits, between which every member was alive and awake (its beat went on): a rank that is only
stopped, slow, or about to notice its flag is never accused.

One record per rank, written by it alone (a sequence lock, so readers see it whole or not at all):

    version u64 (odd: being written) | state u64 | beat u64 | count u64
    | count x (rank, word, value) | at 2 KiB: length u64, text

Knows words and texts; no operations.
"""

from __future__ import annotations

from typing import Any

from .. import context
from ..errors import CollectiveMismatch
from .header import name_ranks

RECORD_BYTES = 4096
_TEXT_AT, _TEXT_BYTES, _MAX_EDGES = 2048, 2000, 80
IDLE, WAITING, LEFT = 0, 1, 2
LOOK_EVERY = 0.05
_ALWAYS = 1 << 62  # the beat of a rank that will not come back


class Detective:
    """Publishes the waits of one rank and judges those of all."""

    def __init__(self, words: memoryview, buffer: Any, segment: Any, rank: int, size: int) -> None:
        self._words, self._buffer, self._rank = words, buffer, rank
        self._boxes = [segment.slot(r) for r in range(size)]
        areas = [segment.comm_area(r) for r in range(size)]
        self._at = [offset + nbytes - RECORD_BYTES for offset, nbytes in areas]
        self._version = 0
        self._beat = 0
        self._since: float | None = None
        self._next = 0.0
        self._published: tuple = ()
        self._before: dict[int, tuple[int, int]] = {}
        self._final = False
        self._write(IDLE, [], "")

    def look(self, need: Any) -> None:
        """Called again and again by a waiting rank. Raises ``CollectiveMismatch`` on a deadlock."""
        now = context.now()
        if self._since is None:
            self._since, self._next = now, now + LOOK_EVERY
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        self._publish(need)
        self._beat += 1
        self._words[self._at[self._rank] // 8 + 2] = self._beat
        self._judge()

    def join(self, accuser: int, need: Any) -> None:
        """``accuser`` has failed. If it was of a deadlock that holds this rank too, raise that."""
        _, state, beat, _ = self._read(accuser)
        if state == WAITING and beat == _ALWAYS:
            self._publish(need)
            stuck = self._stuck([self._read(r) for r in range(len(self._at))])
            if self._rank in stuck and accuser in stuck:
                self._accuse(stuck)

    def _publish(self, need: Any) -> None:
        edges = need.edges()[:_MAX_EDGES]
        if (edges, id(need)) != self._published:
            self._published = (edges, id(need))
            text = need.what()
            self._write(WAITING, edges, text)
            self._boxes[self._rank].describe(f"waits in {text}")

    def relax(self) -> None:
        """The wait is over."""
        if self._since is not None:
            self._since, self._before = None, {}
            if self._published and not self._final:
                self._published = ()
                self._write(IDLE, [], "")
                self._boxes[self._rank].describe("")

    def leave(self, text: str = "closed the group") -> None:
        """This rank will take part in nothing more: who waits for it is stuck."""
        if not self._final:
            self._final = True
            self._write(LEFT, [], text, _ALWAYS)

    def has_left(self, rank: int) -> bool:
        """Has ``rank`` left for good?"""
        return self._read(rank)[1] == LEFT

    def _write(self, state: int, edges: list, text: str, beat: int = 0) -> None:
        at, words = self._at[self._rank], self._words
        i = at // 8
        version = words[i] | 1
        words[i] = version
        words[i + 1], words[i + 2], words[i + 3] = state, beat or self._beat, len(edges)
        for k, edge in enumerate(edges):
            words[i + 4 + 3 * k], words[i + 5 + 3 * k], words[i + 6 + 3 * k] = edge
        data = text.encode()[:_TEXT_BYTES]
        words[(at + _TEXT_AT) // 8] = len(data)
        self._buffer[at + _TEXT_AT + 8 : at + _TEXT_AT + 8 + len(data)] = data
        words[i] = version + 1

    def _read(self, rank: int) -> tuple[int, int, int, list]:
        """(version, state, beat, edges) of a rank; version 0 while it is being written."""
        words, i = self._words, self._at[rank] // 8
        version = words[i]
        state, beat, count = words[i + 1], words[i + 2], min(words[i + 3], _MAX_EDGES)
        raw = words[i + 4 : i + 4 + 3 * count].tolist()
        if version & 1 or words[i] != version:
            return 0, IDLE, 0, []
        if state != LEFT and self._boxes[rank].state == "finished":
            return version, LEFT, _ALWAYS, []
        return version, state, beat, [tuple(raw[k : k + 3]) for k in range(0, 3 * count, 3)]

    def _judge(self) -> None:
        records = [self._read(r) for r in range(len(self._at))]
        stuck = self._stuck(records)
        if self._rank not in stuck:
            self._before = {}
            return
        before, self._before = self._before, {r: (records[r][0], records[r][2]) for r in stuck}
        if before.keys() != stuck:
            return
        for r in stuck:
            version, beat = before[r]
            if version != records[r][0] or (records[r][2] < beat + 2 and beat < _ALWAYS):
                if version == records[r][0]:
                    self._before = before  # same waits, not yet two beats: keep the first look
                return
        self._accuse(stuck)

    def _stuck(self, records: list) -> set[int]:
        """The largest set of waiting ranks of which each misses a flag of a member."""
        stuck = {r for r, (_, state, _, _) in enumerate(records) if state != IDLE}
        while True:
            free = {
                r
                for r in stuck
                if records[r][1] == WAITING
                and not any(q in stuck and self._words[i] < v for q, i, v in records[r][3])
            }
            if not free:
                return stuck
            stuck -= free

    def _accuse(self, stuck: set[int]) -> None:
        """Raise, leaving the record in place so that the others reach the same verdict."""
        self._final = True
        i = self._at[self._rank] // 8
        self._words[i + 2] = _ALWAYS
        texts: dict[str, list[int]] = {}
        for r in sorted(stuck):
            at = self._at[r] + _TEXT_AT
            size = min(self._words[at // 8], _TEXT_BYTES)
            text = bytes(self._buffer[at + 8 : at + 8 + size]).decode(errors="replace")
            if self._boxes[r].state == "finished":
                text = "has ended its program"
            texts.setdefault(text, []).append(r)
        lines = [f"  {name_ranks(ranks)}: {text}" for text, ranks in texts.items()]
        raise CollectiveMismatch(
            "ranks wait for each other in calls that do not belong together, and none can go on:\n"
            + "\n".join(lines)
            + "\nEvery rank of a group must make the same calls in one order, on the same groups."
        )
