"""All workers hear of all others, and find out together that nothing is left to do.

Every worker sends its value to the leader, the one with the smallest name, and gets everybody's as
the answer when all have come. A worker that is lost fails it for all who wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from ... import context
from ...errors import CommError, PeerFailed, WaitTimeout
from ...futures import Future
from . import kinds
from .agent import Agent
from .workers import WorkerInfo

_Key = tuple[tuple[str, ...], int]


class _Meeting:
    """Values that have come at the leader."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.values: dict[str, Any] = {}
        self.done: Future = Future()


class Gathering:
    """Meetings of one worker: those that it leads and those it comes to."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._led: dict[_Key, _Meeting] = {}
        self._held: dict[tuple[str, ...], int] = {}  # how many meetings of these workers there were
        self._lost: dict[str, BaseException] = {}
        agent.handle(kinds.GATHER, self._come)
        agent.when_lost.append(self._lose)

    def all_gather(
        self, value: object, names: Iterable[str] | None = None, timeout: float = 0.0
    ) -> dict[str, Any]:
        """Everybody's value by name. ``names``: who takes part (None: all workers); each of them
        calls it, in the same order. ``timeout`` 0: no limit."""
        agent = self._agent
        who = tuple(sorted(names or agent.workers.names()))
        with self._lock:
            number = self._held[who] = self._held.get(who, 0) + 1
        try:
            future = agent.call(who[0], kinds.GATHER, (who, number, value), timeout, "_all_gather")
            return future.wait()
        except WaitTimeout as error:
            missing = self._missing((who, number))
            raise WaitTimeout(
                f"Followers {missing} timed out in _all_gather after {timeout:.2f} seconds. The "
                f"first exception is {error}"
            ) from None

    def _missing(self, key: _Key) -> list[str]:
        meeting = self._led.get(key)
        return [] if meeting is None else [n for n in key[0] if n not in meeting.values]

    def _come(self, caller: WorkerInfo, said: tuple) -> Any:
        """At the leader: somebody has come."""
        names, number, value = said
        key = (tuple(names), number)
        with self._lock:
            meeting = self._led.setdefault(key, _Meeting(key[0]))
            if caller.name not in names or caller.name in meeting.values:
                raise CommError(
                    f"_all_gather: {caller.name} is not expected by the leader of {list(names)}, "
                    "or came twice"
                )
            meeting.values[caller.name] = value
            lost = [self._lost[n] for n in names if n in self._lost and n not in meeting.values]
            whole = len(meeting.values) == len(names)
            if whole or lost:
                self._led.pop(key, None)
        if whole:
            meeting.done.set_result(meeting.values)
        elif lost and not meeting.done.done():
            meeting.done.set_exception(_to_raise(lost[0]))
        return meeting.done

    def _lose(self, worker: WorkerInfo, error: BaseException) -> None:
        """A worker is gone: meetings that it has not come to will not be whole."""
        if isinstance(error, PeerFailed):
            error = error.again(f"worker {worker.name!r} did not come to a meeting of all")
        with self._lock:
            self._lost[worker.name] = error
            broken = [
                key
                for key, m in self._led.items()
                if worker.name in m.names and worker.name not in m.values
            ]
            meetings = [self._led.pop(key) for key in broken]
        for meeting in meetings:
            meeting.done.set_exception(_to_raise(error))


def _to_raise(error: BaseException) -> BaseException:
    """What is kept for later meetings must not be raised itself: see ``PeerFailed.again``."""
    return error.again() if isinstance(error, PeerFailed) else error


def gathering(agent: Agent) -> Gathering:
    return agent.slot("gathering", lambda: Gathering(agent))


def drain(agent: Agent, timeout: float = 0.0) -> None:
    """Return when no worker has a call in flight or a request in hand, which all find out together:
    every worker calls this. ``timeout`` in seconds, 0: no limit.

    A round tells how many calls each worker has started. When two rounds tell the same, and nobody
    was busy at either, nothing was on its way in between.
    """
    limit = timeout or _FOR_EVER
    before: dict[str, Any] | None = None
    while True:
        context.wait_until(lambda: not _busy(agent), lambda: _what(agent), limit)
        now = gathering(agent).all_gather((agent.started, _busy(agent)), None, timeout)
        if now == before and not any(busy for _, busy in now.values()):
            return
        before = now


def end_calls(agent: Agent, timeout: float = 0.0) -> None:
    """Return when this worker has no call in flight."""

    def ended() -> bool:
        return all(future.done() for future in list(agent.in_flight.values()))

    context.wait_until(ended, lambda: _what(agent), timeout or _FOR_EVER)


def answer_all(agent: Agent, timeout: float = 0.0) -> None:
    """Return when every request that has come is answered. At the leader, the answers of the last
    meeting are among them: others wait for those when it could already leave."""
    context.wait_until(lambda: not agent.handling, lambda: _what(agent), timeout or _FOR_EVER)


_FOR_EVER = float("inf")


def _busy(agent: Agent) -> bool:
    """Has it something under way? (Meetings of all are handled at the leader all the while.)"""
    calls = list(agent.in_flight.values())
    return any(f.what != "_all_gather" and not f.done() for f in calls) or any(
        r.kind != kinds.GATHER for r in list(agent.handling)
    )


def _what(agent: Agent) -> str:
    calls = [f.describe() for f in list(agent.in_flight.values())][:4]
    asked = [f"a request of {r.caller.name}" for r in list(agent.handling)][:4]
    return "shutdown: the end of " + "; ".join(calls + asked)
