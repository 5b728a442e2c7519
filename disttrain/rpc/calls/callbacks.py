"""Threads that run the callbacks of answers, which may block and call others.

Who brings an answer only leaves its callbacks here. One thread at a time is on its way to what lies
here; one that finds more than it takes sends for another before it begins. So callbacks that end
soon run one after the other on a thread or two, and none waits behind one that blocks. A thread
stays for a moment without work. Knows functions; no calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ... import context
from ...errors import PeerFailed, WaitTimeout

KEEP = 1.0  # seconds that a thread stays without work

Task = Sequence[Callable[[], None]]


class Callbacks:
    """``start(body, name)`` starts a thread of the rank."""

    def __init__(self, start: Callable[[Callable[[], None], str], None]) -> None:
        self._start = start
        self._lock, self._bell = threading.Lock(), threading.Semaphore(0)
        self._todo: deque[Task] = deque()
        self._idle = 0  # threads that sleep and are not sent for
        self._coming = self._closed = False

    def put(self, task: Task) -> None:
        """Have the functions of ``task`` run, one after the other. Returns at once."""
        with self._lock:
            self._todo.append(task)
            new = self._send_for_one()
        if new:
            self._start_one()

    def close(self) -> None:
        """Let threads without work end. What is put later runs, too."""
        with self._lock:
            self._closed = True
            sleeping, self._idle = self._idle, 0
            if sleeping:
                self._bell.release(sleeping)

    def _send_for_one(self) -> bool:
        """See that a thread comes; whether it is to be started. The caller holds the lock."""
        if self._coming:
            return False
        self._coming = True
        if not self._idle:
            return True
        self._idle -= 1
        self._bell.release()
        return False

    def _work(self) -> None:
        arrives = True
        while True:
            task = self._next(arrives)
            if task is not None:
                for callback in task:
                    callback()
                arrives, task = False, None  # what it refers to ends now
            elif self._sleep():
                arrives = True
            else:
                return

    def _next(self, arrives: bool) -> Task | None:
        """What to run now. ``arrives``: this thread was sent for, and has come."""
        with self._lock:
            if arrives:
                self._coming = False
            if not self._todo:
                return None
            task = self._todo.popleft()
            new = bool(self._todo) and self._send_for_one()
        if new:
            try:
                self._start_one()
            except RuntimeError:  # there can be no more threads: this one takes the rest
                pass
        return task

    def _start_one(self) -> None:
        try:
            self._start(self._work, "rpc callbacks")
        except BaseException:
            with self._lock:
                self._coming = False  # whoever is next tries again
            raise

    def _sleep(self) -> bool:
        """Until this thread is sent for; False where it is to end."""
        with self._lock:
            if self._todo and not self._coming:
                self._coming = True
                return True
            if self._closed:
                return False
            self._idle += 1
        came = False

        def called() -> bool:
            nonlocal came
            came = came or self._bell.acquire(blocking=False)
            return came

        def block(seconds: float) -> None:
            nonlocal came
            came = came or self._bell.acquire(timeout=max(0.0, seconds))

        try:
            context.wait_until(called, lambda: "callbacks to run", KEEP, block)
        except (WaitTimeout, PeerFailed):  # (some rank has failed, which concerns others)
            with self._lock:
                if not called():
                    self._idle -= 1
                    return False
        return True
