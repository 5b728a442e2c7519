"""Threads that wait on one epoll for descriptors, and run what belongs to each.

While something runs that keeps others waiting (a *holder*), one thread looks every few milliseconds
whether it still does, and makes it let go; when all is quiet nobody looks. There is always a thread
for the next event. Knows descriptors and functions; no messages.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from .... import context

TICK = 0.5  # seconds between two looks at what no descriptor tells
FAST_TICK = 0.002  # the same while there are holders: how long one holds at most
QUIET = 25  # fast ticks without a new holder after which nobody looks
KEEP = 10.0  # seconds that a thread stays without work
SPARE = 2  # threads that stay for ever
_COMPLAIN_EVERY = 60.0

_log = logging.getLogger("disttrain.messaging")

Action = Callable[[int], None]  # takes the mask of events


class Holder(Protocol):
    """Something that keeps others waiting while a thread runs it."""

    def let_go(self, turn: int) -> None:
        """Stop that, where ``turn`` is what it runs now."""


class Pool:
    """``watch`` registers a descriptor; ``start`` begins to serve. ``tick`` is called every
    ``TICK`` seconds."""

    def __init__(self, name: str, most: int, tick: Callable[[], None]) -> None:
        self._name, self._most, self._tick = name, most, tick
        self._epoll = select.epoll()
        self._actions: dict[int, Action] = {}
        self._lock = threading.Lock()
        self._idle = self._alive = 0
        self._next_tick = time.monotonic() + TICK
        self._complained = -_COMPLAIN_EVERY
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.watch(self._wake, select.EPOLLIN, self._woken)
        self._holders: dict[Holder, int] = {}
        self._lively = False
        self._ticking = threading.Lock()  # held by the thread that looks at the holders
        self._seen: dict[Holder, int] = {}
        self._turns = self._quiet = 0
        self.stopping = False

    def start(self) -> None:
        for _ in range(SPARE):
            self._add_thread()

    def watch(self, fd: int, events: int, action: Action) -> None:
        """Call ``action(mask)`` on one of the threads for ``events`` of ``fd``."""
        self._actions[fd] = action
        try:
            self._epoll.register(fd, events)
        except BaseException:
            if self._actions.get(fd) is action:  # the number may be another's by now
                del self._actions[fd]
            raise

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

    # --- holders ---------------------------------------------------------------------------------

    def hold(self, holder: Holder, turn: int) -> None:
        """Have ``holder.let_go(turn)`` called, unless it is ``released`` in a few milliseconds."""
        self._holders[holder] = turn
        self._turns += 1
        if not self._lively:
            self._lively = True
            self._wake_one()

    def released(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    def _look_at_holders(self) -> None:
        """Make those let go that were here at the last look."""
        now = dict(self._holders)
        for holder, turn in now.items():
            if self._seen.get(holder) == turn:
                holder.let_go(turn)
        self._seen = now
        self._quiet = 0 if now or self._turns else self._quiet + 1
        self._turns = 0
        if self._quiet >= QUIET:
            self._quiet, self._lively = 0, False
            if self._holders:  # one came at this moment, and woke nobody
                self._lively = True

    # --- threads ---------------------------------------------------------------------------------

    def may_block(self) -> None:
        """The calling thread is about to run what may block: see that another one waits."""
        if self._idle < 1:
            self._add_thread()

    def _add_thread(self) -> None:
        with self._lock:
            if self.stopping:
                return
            full = self._alive >= self._most
            self._alive += not full
            self._idle += not full
        if full:
            self._complain(f"limits.threads is {self._most}")
            return
        try:
            context.start_thread(self._work, self._name)
        except RuntimeError as error:  # the system gives no more: those that are here go on
            self._one_less()
            self._complain(f"no further thread could be started ({error})")

    def _one_less(self) -> None:
        with self._lock:
            self._idle -= 1
            self._alive -= 1

    def _complain(self, why: str) -> None:
        """Messages wait for a thread; log why, at most once a minute."""
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            _log.warning(
                "%s: %s: all %d threads handle messages, and later ones wait until one has ended. "
                "Handlers that wait for calls which come back here may wait for ever: nest calls "
                "less deep, or have fewer in flight (or raise the endpoint's limits.threads)",
                self._name,
                why,
                self._alive,
            )

    def _work(self) -> None:
        idle_since = time.monotonic()
        leaves = False
        try:
            while not self.stopping:
                ticks = self._lively and self._ticking.acquire(False)
                events = self._epoll.poll(FAST_TICK if ticks else TICK, 1)
                if ticks:
                    self._ticking.release()
                    if events:
                        self._wake_one()
                    else:
                        self._look_at_holders()
                if events:
                    self._run(*events[0])
                    idle_since = 0.0
                elif not ticks:
                    idle_since = idle_since or time.monotonic()
                    leaves = self._surplus(idle_since)
                    if leaves:
                        return
                self._tick_if_due()
        finally:
            if not leaves:
                self._one_less()

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
        """Whether the calling thread is one too many. If so it counts no more: others who ask at
        the same time are to stay."""
        if time.monotonic() - idle_since <= KEEP or self._idle <= SPARE:
            return False
        with self._lock:
            if self._idle <= SPARE:
                return False
            self._idle -= 1
            self._alive -= 1
            return True

    def _tick_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK
            try:
                self._tick()
            except Exception:
                _log.exception("%s: a look at the peers failed", self._name)

    def _wake_one(self) -> None:
        """Have a thread go round its loop, to see that it is to tick."""
        try:
            os.eventfd_write(self._wake, 1)
        except OSError:  # it is being closed
            pass

    def _woken(self, mask: int) -> None:
        if not self.stopping:  # else all of them are to wake
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:  # another one has
                pass

    def close(self, seconds: float) -> None:
        """End the threads. Those that still run something after ``seconds`` end when it does."""
        with self._lock:
            if self.stopping:
                return
            self.stopping = True
        self._wake_one()
        deadline = time.monotonic() + seconds
        context.wait_until(
            lambda: self._alive == 0 or time.monotonic() > deadline,
            lambda: f"{self._name}: its threads to end",
            seconds + 1.0,
        )
        self._epoll.close()
        os.close(self._wake)
        self._actions.clear()

    def abandon(self) -> None:
        """In a forked child, which has none of the threads: close its descriptors."""
        self.stopping = True
        self._epoll.close()
        os.close(self._wake)
