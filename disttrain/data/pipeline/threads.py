"""Stages that work beside the program: elements made ahead, and functions called by several
threads.

An error is raised where its element would have come. The threads end with the pass: at its end,
when it is closed, and when nobody has it any more. They belong to the rank that began it.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ... import context
from ...errors import ConfigError
from .elementwise import Mapped
from .stage import Pass, Stage, State, Through, call, packed, unpacked


def start(body: Callable[[], None], name: str) -> None:
    """Run ``body`` on a thread that belongs to the calling rank, sees its context variables, and
    keeps no process alive."""
    rank, variables = context.current(), contextvars.copy_context()

    def run() -> None:
        with context.attach(rank):
            body()

    threading.Thread(target=variables.run, args=(run,), name=name, daemon=True).start()


class _Owned:
    """Threads do not go with a fork: who has them is the process that started them."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def check(self) -> None:
        """Refuse another process."""
        if os.getpid() != self._process:
            raise ConfigError(
                "Pipeline: an iterator with threads was begun in another process, where they "
                "stayed; begin a new one here with iter(pipeline)"
            )


class Prefetched(Stage):
    """Up to ``size`` elements are made ahead."""

    def __init__(self, source: Stage, size: int) -> None:
        self.inputs, self._size = (source,), size

    def begin(self) -> Pass:
        return _PrefetchedPass(self.inputs[0].begin(), self._size)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _Shelf:
    """What the thread and the pass share; the thread does not hold the pass."""

    def __init__(self, source: Pass, size: int) -> None:
        self.source, self.size = source, size
        self.found: deque[tuple[Any, BaseException | None]] = deque()
        self.turn = threading.Lock()  # of who uses the source
        self.changed = threading.Condition()
        self.ended = self.closed = False

    def fill(self) -> None:
        """The thread: read ahead until the end, or until closed."""
        while self._room():
            with self.turn:
                if self.closed:
                    break
                self._read()
        if self.closed:
            with self.turn:
                self.source.close()

    def _room(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.found) < self.size)
            return not self.closed and not self.ended

    def _read(self) -> None:
        item: tuple[Any, BaseException | None]
        try:
            item = (self.source.next(), None)
        except StopIteration:
            with self.changed:
                self.ended = True
                self.changed.notify_all()
            return
        except BaseException as error:
            item = (None, error)
        with self.changed:
            self.found.append(item)
            self.changed.notify_all()

    def take(self) -> Any:
        """The next element."""
        with self.changed:
            self.changed.wait_for(lambda: self.found or self.ended or self.closed)
            if not self.found:
                raise StopIteration
            element, error = self.found.popleft()
            self.changed.notify_all()
        if error is not None:
            raise error
        return element

    def close(self) -> None:
        """Let the thread end."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class _PrefetchedPass(Pass):
    def __init__(self, source: Pass, size: int) -> None:
        self._shelf = _Shelf(source, size)
        self._owned = _Owned()
        self._started = False

    def next(self) -> Any:
        self._owned.check()
        shelf = self._shelf
        if not self._started and not shelf.closed:
            self._started = True
            start(shelf.fill, "pipeline prefetch")
        return shelf.take()

    def state(self) -> State:
        self._owned.check()
        shelf = self._shelf
        with shelf.turn:  # between two reads of the thread
            made = [e for e, error in shelf.found if error is None]
            return {"source": shelf.source.state(), "made": packed(made), "ended": shelf.ended}

    def restore(self, state: State) -> None:
        shelf = self._shelf
        shelf.source.restore(state["source"])
        shelf.found.extend((e, None) for e in unpacked(state["made"]))
        shelf.ended = state["ended"]

    def close(self) -> None:
        self._shelf.close()
        if not self._started:
            self._shelf.source.close()

    def __del__(self) -> None:
        self._shelf.close()


class ParallelMapped(Mapped):
    """A function of each element, called by ``threads`` threads; ``ordered``: the results come in
    the order of the elements, else as they are made."""

    def __init__(self, source: Stage, fn: Callable[..., Any], threads: int, ordered: bool) -> None:
        super().__init__(source, fn)
        self._threads, self._ordered = threads, ordered

    def begin(self) -> Pass:
        return _ParallelPass(self.inputs[0].begin(), self.fn, self._threads, self._ordered)


class _Call:
    """One call: its element until it is done, then its result or its error."""

    __slots__ = ("done", "element", "error", "result")

    def __init__(self, element: Any) -> None:
        self.element, self.done = element, False
        self.result: Any = None
        self.error: BaseException | None = None


class _Crew:
    """Threads that make calls, in the order in which they were asked for."""

    def __init__(self, fn: Callable[..., Any], threads: int) -> None:
        self._fn, self._most = fn, threads
        self._asked: deque[_Call] = deque()
        self.changed = threading.Condition()
        self._threads = self._idle = 0
        self.closed = False

    def ask(self, made: _Call) -> None:
        """Let a thread make this call."""
        with self.changed:
            self._asked.append(made)
            more = self._idle < len(self._asked) and self._threads < self._most
            self._threads += more
            self.changed.notify_all()
        if more:
            start(self._work, "pipeline map")

    def _work(self) -> None:
        while True:
            with self.changed:
                self._idle += 1
                self.changed.wait_for(lambda: self._asked or self.closed)
                self._idle -= 1
                if self.closed:
                    return
                made = self._asked.popleft()
            try:
                made.result = call(self._fn, made.element)
            except BaseException as error:
                made.error = error
            with self.changed:
                made.done = True
                self.changed.notify_all()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Until ``ready()``."""
        with self.changed:
            self.changed.wait_for(ready)

    def close(self) -> None:
        """Let the threads end, each after the call that it makes."""
        with self.changed:
            self.closed = True
            self._asked.clear()
            self.changed.notify_all()


class _ParallelPass(Through):
    def __init__(self, source: Pass, fn: Callable[..., Any], threads: int, ordered: bool) -> None:
        super().__init__(source)
        self._crew, self._most, self._ordered = _Crew(fn, threads), threads, ordered
        self._calls: deque[_Call] = deque()  # as asked for
        self._owned = _Owned()
        self._ended = False
        self._failed: BaseException | None = None  # of the source: after what was asked for

    def next(self) -> Any:
        self._owned.check()
        self._ask()
        if not self._calls:
            failed, self._failed = self._failed, None
            if failed is not None:
                raise failed
            self._crew.close()
            raise StopIteration
        if self._ordered:
            made = self._calls[0]
            self._crew.wait(lambda: made.done)
        else:
            self._crew.wait(lambda: any(c.done for c in self._calls))
            made = next(c for c in self._calls if c.done)
        self._calls.remove(made)
        if made.error is not None:
            raise made.error
        return made.result

    def _ask(self) -> None:
        while not self._ended and self._failed is None and len(self._calls) < self._most:
            try:
                made = _Call(self.source.next())
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._failed = error
            else:
                self._calls.append(made)
                self._crew.ask(made)

    def state(self) -> State:
        self._owned.check()
        self._crew.wait(lambda: all(c.done for c in self._calls))
        made = [packed([c.element if c.error else c.result]) for c in self._calls]
        failed = [c.error is not None for c in self._calls]
        return {**super().state(), "made": made, "failed": failed, "ended": self._ended}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._ended = state["ended"]
        for data, failed in zip(state["made"], state["failed"], strict=True):
            (element,) = unpacked(data)
            made = _Call(element)
            self._calls.append(made)
            if failed:
                self._crew.ask(made)
            else:
                made.result, made.done = element, True

    def close(self) -> None:
        self._crew.close()
        super().close()

    def __del__(self) -> None:
        self._crew.close()
