"""Ranks that wait for each other in calls that do not belong together, found in shared memory.

A rank that has waited for a while, with every thread that could do something, publishes which flags
(words of other ranks) each of its waits misses; so for the operations that it has under way, since
these go on, and write flags that others wait for, while the rank waits for something else. A wait
is *in vain* when a flag that it misses
belongs to a rank that is stuck; a wait for whoever comes first, when all of them do. A rank is
*stuck* when all its waits are in vain: the largest such set is found by taking out, again and
again, ranks of which one wait is not. Ranks that have left for good, or whose process has ended,
count as stuck from the start. A verdict needs two looks with the same waits, between which every
member was alive and awake (its beat went on): a rank that is only stopped, slow, or about to notice
its flag is never accused.

What many ranks do at once must cost little: who waits for ranks that plainly go on looks no
further; of a wait for many only some flags are published, those of ranks that wait themselves
first; and the more ranks there are on a core, the less often each one looks.

One record per rank, written by it alone (a sequence lock, so readers see it whole or not at all):

    version u64 (odd: being written) | state u64 | beat u64 | start u64 | count u64 | missed u64
    | count x (awaited rank and which wait, word, value) | at 2 KiB: length u64, text

``start`` is where the writer's default group begins: who has left an earlier one may still come to
this one. ``missed``: 1 + the rank whose end was the end of the writer's wait, else 0. Who ends of
that has not failed by itself, so others look there for who has.

Knows words and texts; no operations.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection
from typing import Any

from .... import context
from ....errors import CollectiveMismatch, PeerFailed
from ...calls.header import name_ranks
from ...job.blackbox import recorder
from ...job.segment import HAS_LEFT
from ...meeting.survivors import as_view

Edge = tuple[int, int, int]  # awaited rank, index of a word, value that the word must reach

RECORD_BYTES = 4096
_MISSED_AT, _EDGES_AT, _MAX_EDGES = 5, 6, 80  # in words
_MAX_OF_WAIT = 16  # of a wait for all: one rank that is stuck is enough
_TEXT_AT, _TEXT_BYTES = 2048, 2000
IDLE, WAITING, LEFT, DROPPED, ENDED = 0, 1, 2, 3, 4
LOOK_EVERY = 0.05
_CALM = 1000  # ranks squared on a core, from which on they look less often
_LOOKS = 2  # between the two looks of a verdict
# A rank that has dropped its groups is about to say what happened to it: its error comes first.
_LOOKS_DROPPED = 20
_VERDICT = "ranks wait for each other in calls that do not belong together"
_ALWAYS = 1 << 62  # the beat of a rank that will not come back
GONE = (
    "its process is gone, and it has not left its groups (os._exit, exec, or an end that no "
    "launcher has seen). Let every rank make the same calls, then destroy_process_group()."
)
_WAIT_SHIFT, _ANY = 16, 1 << 40  # in the first word of an edge, above the rank


def ranks_of(verdict: str) -> set[int]:
    """The ranks that a deadlock holds by the text of who has found it."""
    if _VERDICT not in verdict:
        return set()
    lists = re.findall(r"^  ranks? ([\d, ]+):", verdict, re.MULTILINE)
    return {int(number) for some in lists for number in re.findall(r"\d+", some)}


class DeadlockDetector:
    """Publishes the waits of one rank and judges those of all."""

    looks = _LOOKS
    calm = 0.0  # seconds that the two looks of a verdict are apart at least

    def __init__(
        self, words: memoryview, buffer: Any, segment: Any, rank: int, size: int, start: int
    ) -> None:
        """``start``: where the default group begins."""
        self._words, self._buffer, self._rank, self._start = words, buffer, rank, start
        self._boxes = [segment.slot(r) for r in range(size)]
        self._numbers = as_view(segment).members  # that the ranks had when the job started
        areas = [segment.comm_area(r) for r in range(size)]
        self._at = [offset + nbytes - RECORD_BYTES for offset, nbytes in areas]
        self._every = LOOK_EVERY * max(1.0, size * size / (_CALM * as_view(segment).base.cores))
        self._recorder = recorder()
        self._beat = 0
        self._since: float | None = None
        self._next = 0.0
        self._published: tuple = ()
        self._before: dict[int, tuple[int, int]] = {}
        self._looked = 0.0  # when
        self._final = False
        self._writing = threading.Lock()  # threads of this rank
        self.has_ended: Callable[[int], bool] = lambda rank: False  # is its process gone?
        self.under_way: Callable[[], list] = list  # what operations wait for that nobody waits for
        self._write(IDLE, [], "")

    def look(self, need: object, waits: Callable[[], list]) -> None:
        """Called again and again by a waiting rank. ``waits()``: all that it waits for, empty when
        one of its threads may go on. Raises ``CollectiveMismatch`` on a deadlock, ``PeerFailed``
        where it hangs on a process that has ended."""
        now = context.now()
        if self._since is None:
            self._since, self._next = now, now + self._every
        if now < self._next:
            return
        self._next = now + self._every
        self._look_for_ends(need, waits)
        needs = waits()
        edges = self._publish(needs, need)
        self._beat += 1
        self._words[self._at[self._rank] // 8 + 2] = self._beat
        awaited = {head & 0xFFFF for head, _, _ in edges}
        if self._in_vain(edges, {r for r in awaited if not self._goes_on(r)}):
            self._judge(need)
        else:
            self._before = {}

    def _goes_on(self, rank: int) -> bool:
        """Does it plainly neither wait nor has it left?"""
        if self._words[self._at[rank] // 8 + 1] != IDLE:
            return False
        return self._boxes[rank].state not in ("finished", "vanished") and not self.has_ended(rank)

    def _look_for_ends(self, need: Any, waits: Callable[[], list]) -> None:
        """Raise where this wait itself hangs on a process that has ended: nothing can free it. Of a
        deadlock with this rank, if that is what the process has ended of."""
        ended = {rank for rank, _, _ in need.edges() if self.has_vanished(rank)}
        if not ended:
            return
        missing = [rank for rank, _, _ in need.edges()]  # again: their last words are there now
        gone = ended.intersection(missing)
        if gone and not (getattr(need, "any_of", False) and gone != set(missing)):
            for rank in sorted(gone):
                self.join(rank, need, waits)
            self._blame(gone, need)

    def has_vanished(self, rank: int) -> bool:
        """Is its process gone, and not at the end of its program?"""
        return self._boxes[rank].state == "vanished" or self.has_ended(rank)

    def _blame(self, ended: Collection[int], need: Any) -> None:
        """Raise ``PeerFailed``, of a rank that has not itself given up because of another one."""
        missed = {self.root(rank) for rank in ended if self.root(rank) != rank}
        rank = min(missed or ended, key=lambda r: (self._words[self._at[r] // 8 + 2] == _ALWAYS, r))
        self._final = True
        i = self._at[self._rank] // 8
        self._words[i + _MISSED_AT] = rank + 1
        self._words[i + 2] = _ALWAYS
        once = self._numbers[rank]
        raise PeerFailed(rank, self.why(rank), where=need.what(), ended=True, global_rank=once)

    def why(self, rank: int) -> str:
        """What is known of the end of ``rank``."""
        return GONE

    def root(self, rank: int) -> int:
        """Whom ``rank``, which has ended, has ended of: itself, unless it has missed another one,
        which may have missed another one ..."""
        seen = {self._rank}
        while rank not in seen:
            seen.add(rank)
            i = self._at[rank] // 8
            missed = self._words[i + _MISSED_AT] - 1
            is_old = self._words[i + 3] < self._start  # of another default group
            if is_old or not 0 <= missed < len(self._at) or missed == self._rank:
                break
            rank = missed
        return rank

    def join(self, accuser: int, need: object, waits: Callable[[], list]) -> None:
        """``accuser`` has failed. If it was of a deadlock that holds this rank too, raise that."""
        _, state, beat, _ = self._read(accuser)
        if state == WAITING and beat == _ALWAYS:
            self._publish(waits(), need)
            stuck = self._stuck([self._read(r) for r in range(len(self._at))])
            if self._rank in stuck and accuser in stuck:
                self._accuse(stuck, need)

    def _publish(self, needs: list, need: Any) -> list[Edge]:
        """Say what this rank waits for. ``need``: the wait of this thread, for the black box."""
        edges = _edges_of([*needs, *self.under_way()], self._goes_on) if needs else []
        key = (edges, [id(n) for n in needs], id(need))
        if key == self._published:
            return edges
        texts = dict.fromkeys([need.what(), *[n.what() for n in needs]])
        with self._writing:
            if not self._final:
                self._published = key
                self._write(WAITING if edges else IDLE, edges, "\n    and in ".join(texts))
                self._describe(f"waits in {next(iter(texts))}")
        return edges

    def relax(self) -> None:
        """A wait is over."""
        if self._since is not None:
            self._since, self._before = None, {}
            with self._writing:
                if self._published and not self._final:
                    self._published = ()
                    self._write(IDLE, [], "")
                    self._describe("")

    def _describe(self, text: str) -> None:
        """For people, while the rank lives and afterwards."""
        self._boxes[self._rank].describe(text)
        self._recorder.say(text)

    def leave(self, met: bool) -> None:
        """This rank will take part in nothing more: who waits for it is stuck. ``met``: it has met
        the others a last time."""
        with self._writing:
            if self._final:
                return
            self._final = True
            self._write(LEFT if met else DROPPED, [], "closed the group", _ALWAYS)

    def mute(self) -> None:
        """In a process forked from this rank: write nothing more."""
        self._writing = threading.Lock()
        self._final = True

    def _write(self, state: int, edges: list, text: str, beat: int = 0) -> None:
        at, words = self._at[self._rank], self._words
        i = at // 8
        version = words[i] | 1
        words[i] = version
        words[i + 1], words[i + 2] = state, beat or self._beat
        words[i + 3], words[i + 4], words[i + _MISSED_AT] = self._start, len(edges), 0
        for k, edge in enumerate(edges):
            at_edge = i + _EDGES_AT + 3 * k
            words[at_edge], words[at_edge + 1], words[at_edge + 2] = edge
        data = text.encode()[:_TEXT_BYTES]
        words[(at + _TEXT_AT) // 8] = len(data)
        self._buffer[at + _TEXT_AT + 8 : at + _TEXT_AT + 8 + len(data)] = data
        words[i] = version + 1

    def _read(self, rank: int) -> tuple[int, int, int, list]:
        """(version, state, beat, edges) of a rank; version 0 while it is being written."""
        words, i = self._words, self._at[rank] // 8
        version = words[i]
        state, beat, start = words[i + 1 : i + 4].tolist()
        count = min(words[i + 4], _MAX_EDGES)
        raw = words[i + _EDGES_AT : i + _EDGES_AT + 3 * count].tolist()
        if version & 1 or words[i] != version:
            return 0, IDLE, 0, []
        if rank != self._rank:
            if self._boxes[rank].state == "finished":
                return version, LEFT, _ALWAYS, []
            accused = state == WAITING and beat == _ALWAYS  # and has ended of that
            if not accused and self.has_vanished(rank):
                return version, ENDED, _ALWAYS, []
        if state in (LEFT, DROPPED) and start < self._start:
            return version, IDLE, 0, []
        return version, state, beat, [tuple(raw[k : k + 3]) for k in range(0, 3 * count, 3)]

    def _judge(self, need: object) -> None:
        records = [self._read(r) for r in range(len(self._at))]
        stuck = self._stuck(records)
        if self._rank not in stuck:
            self._before = {}
            return
        before, self._before = self._before, {r: (records[r][0], records[r][2]) for r in stuck}
        looked, self._looked = self._looked, context.now()
        if before.keys() != stuck:
            return
        dropped = any(records[r][1] == DROPPED for r in stuck)
        looks = max(self.looks, _LOOKS_DROPPED) if dropped else self.looks
        if any(before[r][0] != records[r][0] for r in stuck):
            return  # one of them waits for something else now
        slow = any(b < _ALWAYS and records[r][2] < b + self.looks for r, (_, b) in before.items())
        early = self._looked < looked + self.calm or self._beat < before[self._rank][1] + looks
        if slow or early:
            self._before, self._looked = before, looked  # the same waits: keep the first look
            return
        self._accuse(stuck, need)

    def _stuck(self, records: list) -> set[int]:
        """The largest set of waiting ranks all of whose waits are in vain."""
        stuck = {r for r, (_, state, _, _) in enumerate(records) if state != IDLE}
        relying: dict[int, list[list[int]]] = {}  # rank -> waits that hang on it
        free = []
        for rank in [r for r in stuck if records[r][1] == WAITING]:
            for awaited, any_of in _by_wait(records[rank][3]):
                hangs = [
                    r for r, word, value in awaited if r in stuck and self._misses(word, value)
                ]
                if not hangs or (any_of and len(hangs) < len(awaited)):
                    free.append(rank)
                    break
                wait = [rank, 1 if any_of else len(hangs)]  # so many must be freed to free it
                for r in hangs:
                    relying.setdefault(r, []).append(wait)
        while free:
            rank = free.pop()
            if rank not in stuck:
                continue
            stuck.discard(rank)
            for wait in relying.get(rank, ()):
                wait[1] -= 1
                if wait[1] == 0:
                    free.append(wait[0])
        return stuck

    def _in_vain(self, edges: list, stuck: set[int]) -> bool:
        """Is none of these waits met, and does each hang on a rank of ``stuck``?"""
        waits = _by_wait(edges) if stuck else []
        for awaited, any_of in waits:
            hangs = [r in stuck and self._misses(word, value) for r, word, value in awaited]
            if not (all(hangs) if any_of else any(hangs)):
                return False
        return bool(waits)

    def _misses(self, word: int, value: int) -> bool:
        return self._words[word] < value

    def _accuse(self, stuck: set[int], need: Any) -> None:
        """Raise, leaving the record in place so that the others reach the same verdict."""
        self._final = True
        i = self._at[self._rank] // 8
        self._words[i + 2] = _ALWAYS
        ended = [r for r in stuck if self._read(r)[1] == ENDED]
        if ended:
            self._blame(ended, need)
        texts: dict[str, list[int]] = {}
        for r in sorted(stuck):
            at = self._at[r] + _TEXT_AT
            size = min(self._words[at // 8], _TEXT_BYTES)
            text = bytes(self._buffer[at + 8 : at + 8 + size]).decode(errors="replace")
            if self._boxes[r].state == "finished":
                text = HAS_LEFT
                if not self._boxes[r].error[0]:  # the launcher blames it, not who has waited
                    self._boxes[r].record_error(f"{text} while others waited: {need.what()}", "")
            texts.setdefault(text, []).append(r)
        lines = [f"  {name_ranks(ranks)}: {text}" for text, ranks in texts.items()]
        raise CollectiveMismatch(
            f"{_VERDICT}, and none can go on:\n"
            + "\n".join(lines)
            + "\nEvery rank of a group must make the same calls in one order, on the same groups."
        )


def _edges_of(needs: list, goes_on: Callable[[int], bool]) -> list[Edge]:
    """Flags that the waits miss; of a wait for many ranks only some, first of ranks that do not go
    on; nothing where one of the waits cannot say, or is over."""
    found: list[Edge] = []
    waits: list[tuple[list[Edge], bool]] = []
    for need in needs:
        edges, any_of = need.edges(), getattr(need, "any_of", False)
        if (edges, any_of) in waits:
            continue
        mark = len(waits) << _WAIT_SHIFT | (_ANY if any_of else 0)
        waits.append((edges, any_of))
        if len(edges) > _MAX_OF_WAIT and not any_of:
            edges = sorted(edges, key=lambda edge: goes_on(edge[0]))[:_MAX_OF_WAIT]
        found += [(rank | mark, word, value) for rank, word, value in edges]
        if not edges or len(found) > _MAX_EDGES:
            return []
    return found


def _by_wait(edges: list) -> list[tuple[list[Edge], bool]]:
    """For each wait: (awaited rank, word, value) of all its edges; is one of them enough?"""
    waits: dict[int, list[Edge]] = {}
    for head, word, value in edges:
        waits.setdefault(head >> _WAIT_SHIFT, []).append((head & 0xFFFF, word, value))
    return [(awaited, bool(wait & (_ANY >> _WAIT_SHIFT))) for wait, awaited in waits.items()]
