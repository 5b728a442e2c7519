"""The log of a rank as a replay goes through it: which call is which of the recording, when it has
its turn, and the first difference.

Calls of one kind (the collectives of a group, the messages of a pair and tag, the requests of a
store for some keys ...) come in the order of the recording; over all of them, threads wait for each
other, as far as they do the same. What messages of RPC bring comes when all has happened that came
before it. Knows frames; no arrays.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from ...errors import SerializationError
from ...trace import logger
from ..log.frames import Frame, Log, Meta
from .bookkeeping import Bookkeeping
from .stops import Stops, site_of

PATIENCE = 3.0  # seconds in which nothing happens, after which a thread goes on before its turn
_IDLE = 0.05  # of a core: who takes less than that does nothing
_LOOK_EVERY = 0.02
_SHOWN = 16  # requests to a peer among which one with the same content is looked for


class ReplayEnds(BaseException):  # noqa: N818  (no program is to catch it)
    """The program cannot go on: it parts from the recording, or that ends here."""


class Pending:
    """A call that has begun, as work: what is to be done when it ends."""

    def __init__(self, number: int, end: Frame | None, finish: Callable[[], None]) -> None:
        self.number, self.end, self.finish = number, end, finish


class Session:
    """A replay of one rank. ``say``: is given lines for the user."""

    def __init__(self, log: Log, stops: Stops, say: Callable[[str], None]) -> None:
        self.log, self.stops, self.say = log, stops, say
        self.difference = ""  # the first
        self.differences = self.calls = 0
        self.ended = ""  # why the recording has no more, where the program came to its end
        self.step: Callable[[], int] = lambda: 0
        self._queues: dict[str, deque[int]] = defaultdict(deque)
        self.ends: dict[int, Frame] = {}
        self.waits: dict[int, deque[Frame]] = defaultdict(deque)
        self._turns: list[int] = []  # numbers of frames that have a turn, in order
        self._done: set[int] = set()
        self._first = 0  # of ``_turns``, the first that is not done
        self._main: deque[int] = deque()
        self._pending: dict[int, Pending] = {}
        self.numbers: dict[int, int] = {}  # of requests: the recording's and those of the program
        self.bookkeeping = Bookkeeping(log.frames)
        self._state, self._moved = threading.Condition(threading.RLock()), time.monotonic()
        self._sort()

    def _sort(self) -> None:
        for i, frame in enumerate(self.log.frames):
            meta, kind = frame.meta, frame.meta.get("k")
            if i in self.bookkeeping.numbers:
                continue
            if kind == "call":
                self._queues[meta["key"]].append(i)
                self._turns.append(i)
                if meta["main"] and meta["verb"] != "rpc":
                    self._main.append(i)
            elif kind == "drawn":
                self._queues[meta["key"]].append(i)
            elif kind == "in":
                self._turns.append(i)
            elif kind == "end":
                self.ends[meta["of"]] = frame
            elif kind == "wait":
                self.waits[meta["of"]].append(frame)

    @property
    def meta(self) -> Meta:
        """What the first frame says of the process."""
        frame = self.log.frames[0]
        self.log.check(frame)
        return frame.meta

    def arrivals(self) -> list[Frame]:
        """The messages of RPC that have turns, in order."""
        frames, aside = self.log.frames, self.bookkeeping.numbers
        return [f for i, f in enumerate(frames) if f.meta.get("k") == "in" and i not in aside]

    def drawn(self, key: str, value: int) -> int:
        """A number as it was drawn when recorded; ``value`` where it was not."""
        with self._state:
            queue = self._queues[key]
            if not queue:
                return value
            frame = self.log.frames[queue.popleft()]
        self.bytes_of(frame)
        return int(frame.meta["value"])

    def bytes_of(self, frame: Frame) -> memoryview:
        """What came with a frame. What was not written by this user ends the replay."""
        try:
            return self.log.bytes_of(frame)
        except SerializationError as error:
            self.structural(str(error))
            raise

    # -- calls ---------------------------------------------------------------------------------

    def call(
        self, key: str, verb: str, text: str = "", tail: str = "", given: str | None = None,
        chosen: Callable[[int], None] | None = None,
    ) -> int:  # fmt: skip
        """A call begins: its number in the recording, once it has its turn. ``chosen(number)`` is
        called before anything that came after it."""
        with self._state:
            number = self._next(key, verb, text, given)
            frame = self.log.frames[number]
            self.bytes_of(frame)
            self._compare(frame.meta, key, verb, text, tail)
            self._queues[key].remove(number)
            if number in self._main:
                self._main.remove(number)
        self.stops.call(self.calls, verb)
        self.calls += 1
        self._wait_turn(number)
        self._finish_before(number)
        if chosen is not None:
            chosen(number)
        with self._state:
            self._take(number)
        told = frame.meta.get("given")
        if given is not None and told is not None and given != told:
            self.differs(
                f"{_called(frame.meta)}: what the rank gives is not what it gave when recorded "
                f"(called at {site_of(text)})"
            )
        return number

    def _next(self, key: str, verb: str, text: str, given: str | None) -> int:
        queue, main = self._queues[key], threading.current_thread() is threading.main_thread()
        if verb == "rpc" and given is not None:
            for number in list(queue)[:_SHOWN]:
                if self.log.frames[number].meta.get("given") == given:
                    return number
        expected = self._main[0] if main and self._main and verb != "rpc" else None
        if not queue:
            self._part(expected, key, verb, text)
        number = queue[0]
        meta = self.log.frames[number].meta
        if expected is not None and meta["main"] and number != expected:
            self._part(expected, key, verb, text)
        return number

    def _part(self, expected: int | None, key: str, verb: str, text: str) -> None:
        """The program calls what was not called."""
        now = text or f"{verb} ({key}) at {here()}"
        if expected is None:
            if "exit" in self.log.frames[-1].meta.get("k", ""):
                self.structural(f"the program calls {now}; the recorded one made no more such call")
            self.stop(f"the recording ends before this call: {now}")
        else:
            was = self.log.frames[expected].meta
            self.structural(f"the program calls {now}; recorded is {_called(was)}")

    def _compare(self, was: Meta, key: str, verb: str, text: str, tail: str) -> None:
        same = was["verb"] == verb and (not tail or was.get("tail", "")[:-16] == tail[:-16])
        if not same:
            self.structural(f"the program calls {text or verb}; recorded is {_called(was)}")

    def _wait_turn(self, number: int) -> None:
        """Until all that came before is done; not longer than anything goes on in this process."""
        with self._state:
            self._moved, worked = time.monotonic(), time.process_time()
            while not self._has_turn(number):
                self._state.wait(_LOOK_EVERY)
                now = time.monotonic()
                if now - self._moved < PATIENCE:
                    continue
                busy = time.process_time() - worked
                if busy < _IDLE * PATIENCE and not self.stops.stopped:
                    logger(__package__).info("replay: a thread goes on before its turn")
                    return
                self._moved, worked = now, time.process_time()

    def _has_turn(self, number: int) -> bool:
        turns, done = self._turns, self._done
        while self._first < len(turns) and turns[self._first] in done:
            done.discard(turns[self._first])
            self._first += 1
        return self._first >= len(turns) or turns[self._first] >= number

    def _take(self, number: int) -> None:
        self._done.add(number)
        self._has_turn(number)
        self._moved = time.monotonic()
        self._state.notify_all()

    def has_come(self, frame: Frame, before: int) -> bool:
        """Has all happened that came before this frame, of call ``before``?"""
        with self._state:
            return self._has_turn(frame.at)

    def await_frame(self, frame: Frame) -> None:
        """Until all has happened that came before it."""
        self._wait_turn(frame.at)
        self._finish_before(frame.at)

    def took(self, frame: Frame) -> None:
        """What came by it is there."""
        with self._state:
            self._take(frame.at)

    def end(self, number: int) -> Frame:
        """The end of a call that ended before the next one of its thread began, in its turn.
        Raises what it raised."""
        frame = self.ends.get(number)
        if frame is None:
            self.stop(
                f"the recording ends in {_called(self.log.frames[number].meta)}: the rank was "
                "killed, or waits for ever"
            )
        assert frame is not None
        self.await_frame(frame)
        self.bytes_of(frame)
        return frame

    # -- works ---------------------------------------------------------------------------------

    def pend(self, number: int, finish: Callable[[], None]) -> Pending:
        """A call goes on as work; ``finish()`` is called once, when it ends."""
        made = Pending(number, self.ends.get(number), finish)
        with self._state:
            self._pending[number] = made
        return made

    def settle(self, work: Pending) -> None:
        """Let a work end, and those that ended before it."""
        if work.end is None:
            self.end(work.number)
        assert work.end is not None
        self._finish_before(work.end.at)
        with self._state:
            mine = self._pending.pop(work.number, None)
        if mine is not None:
            mine.finish()

    def _finish_before(self, at: int) -> None:
        while True:
            with self._state:
                found = [p for p in self._pending.values() if p.end is not None and p.end.at < at]
                if not found:
                    return
                first = min(found, key=lambda p: p.end.at)  # type: ignore[union-attr]
                del self._pending[first.number]
            first.finish()

    # -- differences ---------------------------------------------------------------------------

    def differs(self, what: str) -> None:
        """Something differs, after which the program can go on."""
        with self._state:
            self.differences += 1
            first = not self.difference
            if first:
                self.difference = what
        if first:
            self.say(f"the first difference: step {self.step()}: {what}")
            self.stops.difference()

    def structural(self, what: str) -> None:
        """Something differs, after which it cannot."""
        self.differs(what)
        raise ReplayEnds(what)

    def stop(self, why: str) -> None:
        """There is no more in the recording."""
        self.ended = why
        self.say(why)
        self.stops.difference()
        raise ReplayEnds(why)

    def left(self) -> str:
        """The first call of the recording that the program did not make; nothing where none."""
        rest = list(self._main)
        return _called(self.log.frames[rest[0]].meta) if rest else ""


def _called(meta: Meta) -> str:
    return str(meta.get("text") or f"{meta['verb']} ({meta['key']})")


def here() -> str:
    """The line of the program that is running."""
    return site_of("")


def error_line(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def to_stderr(line: str) -> None:
    """Say a line to the user."""
    sys.stderr.write(f"replay: {line}\n")
    sys.stderr.flush()


__all__ = ["Pending", "ReplayEnds", "Session", "error_line", "here", "to_stderr"]
