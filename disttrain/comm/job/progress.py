"""How a process waits for its operations: what is in flight goes on meanwhile.

Knows needs and whatever has an ``advance()``; no transport.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ... import context
from .blackbox import recorder


class Need(Protocol):
    """Something to wait for. Calling it says whether it is there."""

    def __call__(self) -> bool: ...

    def what(self) -> str:
        """The wait described for people."""
        ...


N = TypeVar("N", bound=Need)


class Progress(Generic[N]):
    """What the transports of a rank share that have one place to wait. ``pending`` holds whatever
    has operations in flight (objects with an ``advance()`` that never blocks)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: list[Any] = []
        # what each thread of this rank waits for now, and for how long
        self._needs: dict[int, tuple[N, float | None]] = {}
        self._box = recorder()  # how long the rank waits

    def progress(self) -> None:
        """Let everything in flight go on as far as it can."""
        if self.lock.acquire(False):
            try:
                for owner in tuple(self.pending):
                    owner.advance()
            finally:
                self.lock.release()

    def wait(self, need: N, timeout: float | None) -> None:
        """Block until ``need()``; meanwhile operations in flight go on."""
        pending = self.pending

        def ready() -> bool:
            if need():
                return True
            if pending:
                self.progress()
                return need()
            return False

        if ready():
            return
        thread = threading.get_ident()
        outer = self._needs.get(thread)
        since = self._box.waits() if outer is None else 0
        self._needs[thread] = need, timeout
        try:
            self._until(ready, need, timeout)
        finally:
            if outer is None:
                self._box.waited(since)
                del self._needs[thread]
            else:  # what was waited for inside a callback
                self._needs[thread] = outer
            self._relax()

    def _until(self, ready: Callable[[], bool], need: N, timeout: float | None) -> None:
        """Block until ``ready()``."""
        context.wait_until(ready, need.what, timeout)

    # Called when a wait is over, by whose name a method or an attribute goes (a frame less).
    _relax: Callable[[], None]
