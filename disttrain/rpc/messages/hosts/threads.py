"""Threads that grow with what there is to run, for gRPC's handlers and for requests.

Unlike those of ``concurrent.futures`` they do not keep the process alive. Knows functions only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .... import context

KEEP = 10.0  # seconds that a thread stays without work

_log = logging.getLogger("disttrain.messaging")


class Threads:
    """``run`` always finds a thread. They belong to the rank of who made this."""

    def __init__(self, name: str) -> None:
        self._name, self._rank = name, context.current()
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._idle = self._alive = 0
        self._closed = False

    def run(self, body: Callable[[], None]) -> None:
        """Run ``body`` beside the caller. Raises ``RuntimeError`` where no thread is idle and the
        system gives no other."""
        with self._changed:
            self._work.append(body)
            if len(self._work) <= self._idle:
                self._changed.notify()
                return
            self._alive += 1
        try:
            with context.attach(self._rank):
                context.start_thread(self._serve, self._name)
        except RuntimeError:
            with self._changed:
                self._alive -= 1
                if body not in self._work:  # another thread has taken it meanwhile
                    return
                self._work.remove(body)
            raise

    def submit(self, fn: Callable[..., Any], *args: object) -> Future:
        """As an ``Executor`` does: what gRPC asks of its pool of threads."""
        future: Future = Future()

        def body() -> None:
            try:
                future.set_result(fn(*args))
            except BaseException as error:
                future.set_exception(error)

        self.run(body)
        return future

    def close(self) -> None:
        """Let the threads end, each when it has nothing left to do."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def alive(self) -> int:
        return self._alive

    def _serve(self) -> None:
        while (body := self._next()) is not None:
            try:
                body()
            except Exception:
                _log.exception("%s: something was not handled", self._name)
            del body  # what it holds is not to outlive it

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._work:
                self._idle += 1
                waited = not self._closed and self._changed.wait(KEEP)
                self._idle -= 1
                if not waited and not self._work:
                    self._alive -= 1
                    return None
            return self._work.popleft()
