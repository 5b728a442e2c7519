"""Threads that wait on one epoll for descriptors, and run what belongs to each.

A thread that may block says so (``may_block``), and another one is there for the next event. Knows
descriptors and functions; no messages.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable

from ... import context

TICK = 0.5  # seconds between two looks at what no descriptor tells
KEEP = 10.0  # seconds that a thread stays without work
SPARE = 2  # threads that stay for ever

_log = logging.getLogger("disttrain.messaging")

Action = Callable[[int], None]  # takes the mask of events


class Pool:
    """``watch`` registers a descriptor; ``start`` begins to serve."""

    def __init__(self, name: str, most: int, tick: Callable[[], None]) -> None:
        self._name, self._most, self._tick = name, most, tick
        self._epoll = select.epoll()
        self._actions: dict[int, Action] = {}
        self._lock = threading.Lock()
        self._idle = self._alive = 0
        self._starting = 0
        self._stop_reader, self._stop_writer = os.pipe()
        self._epoll.register(self._stop_reader, select.EPOLLIN)
        self._next_tick = time.monotonic() + TICK
        self.stopping = False

    def start(self) -> None:
        for _ in range(SPARE):
            self._add_thread()

    def watch(self, fd: int, events: int, action: Action) -> None:
        """Call ``action(mask)`` on one of the threads for ``events`` of ``fd``."""
        self._actions[fd] = action
        self._epoll.register(fd, events)

    def rearm(self, fd: int, events: int) -> None:
        """Watch ``fd`` for other events, or again after one that was to come once."""
        try:
            self._epoll.modify(fd, events)
        except (OSError, ValueError):  # it is not watched any more
            pass

    def forget(self, fd: int) -> None:
        """Do not watch ``fd`` any more; to be called before it is closed."""
        if self._actions.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except (OSError, ValueError):  # the pool is closed
                pass

    def may_block(self) -> None:
        """The calling thread is about to run what may block: see that another one waits."""
        if self._idle + self._starting < 1 and self._alive < self._most:
            self._add_thread()

    def _add_thread(self) -> None:
        with self._lock:
            if self.stopping or self._alive >= self._most:
                return
            self._alive += 1
            self._starting += 1
        context.start_thread(self._work, self._name)

    def _work(self) -> None:
        with self._lock:
            self._starting -= 1
            self._idle += 1
        idle_since = time.monotonic()
        try:
            while not self.stopping:
                events = self._epoll.poll(TICK, 1)
                if events:
                    self._run(*events[0])
                    idle_since = 0.0
                else:
                    idle_since = idle_since or time.monotonic()
                    if self._surplus(idle_since):
                        return
                self._tick_if_due()
        finally:
            with self._lock:
                self._idle -= 1
                self._alive -= 1

    def _run(self, fd: int, mask: int) -> None:
        action = self._actions.get(fd)
        if action is None:
            return
        with self._lock:
            self._idle -= 1
        try:
            action(mask)
        except Exception:
            _log.exception("%s: an event was not handled", self._name)
        finally:
            with self._lock:
                self._idle += 1

    def _surplus(self, idle_since: float) -> bool:
        return time.monotonic() - idle_since > KEEP and self._idle > SPARE

    def _tick_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK
            try:
                self._tick()
            except Exception:
                _log.exception("%s: a look at the peers failed", self._name)

    def close(self, seconds: float) -> None:
        """End the threads. Those that still run something after ``seconds`` end when it does."""
        with self._lock:
            if self.stopping:
                return
            self.stopping = True
        os.write(self._stop_writer, b"x")
        deadline = time.monotonic() + seconds
        context.wait_until(
            lambda: self._alive == 0 or self._idle == 0 or time.monotonic() > deadline,
            lambda: f"{self._name}: its threads to end",
            seconds + 1.0,
        )
        self._epoll.close()
        os.close(self._stop_reader)
        os.close(self._stop_writer)
        self._actions.clear()
