"""The Future of a call: who waits for it reads the answer from the wire itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import context
from ...errors import FutureError, WaitTimeout
from ...futures import Future
from ..messages.contract.message import Message
from .workers import WorkerInfo

INFINITE = float("inf")


class CallFuture(Future):
    """The answer to one call of ``agent``.

    ``worker``: who was asked; ``number``: the call's; ``what``: the function that was called, or a
    text, for messages; ``seconds``: how long it may take (0: as long as it likes); ``deadline``: on
    this rank's clock.
    """

    def __init__(
        self,
        agent: Any,
        worker: WorkerInfo,
        number: int,
        what: Any,
        seconds: float,
        deadline: float,
    ) -> None:
        super().__init__()
        self.agent, self.worker, self.number, self.what = agent, worker, number, what
        self.seconds, self.deadline = seconds, deadline
        self.direct = False  # the caller waits at once, and unpacks the answer
        self.carried = b""  # what the request takes along (``header.Carrier``)
        self._first: Callable[[CallFuture], None] | None = None
        self.answer: Message | None = None  # for who waits at once: what has come, as it came

    # A future that follows from this one goes on when somebody waits for this one.
    @property
    def _waits_for(self) -> tuple:
        return () if self._done else (_Cause(self),)

    @_waits_for.setter
    def _waits_for(self, value: tuple) -> None:
        assert not value

    # Nobody reads the answer until somebody asks for it.

    def done(self) -> bool:
        if not self._done:
            self.agent.endpoint.look_out(self.worker.id)
        return self._done

    def _when_done(self, callback: Callable[[], None]) -> None:
        super()._when_done(callback)
        self.done()

    def wait(self) -> Any:
        """Block until the answer is there; the result, or raises the exception."""
        if not self._done:
            self._await(self.deadline)
        return self.value()

    def wait_for(self, seconds: float, what: str = "the result of a Future") -> Any:
        if not self._done:
            self._await(min(self.deadline, context.now() + seconds))
        return self.value()

    def _await(self, until: float) -> None:
        """Return when it is done; ``WaitTimeout`` at ``until``, if that is before the call's own
        deadline, at which the call fails."""
        if self._done:  # its worker is lost, perhaps before there ever was a connection to wait on
            return
        block = self.agent.endpoint.waiting(self.worker.id, self.number)
        if self._done:
            return
        left = until - context.now() if until != INFINITE else INFINITE
        try:
            context.wait_until(lambda: self._done, self._awaited, left, block)
        except WaitTimeout:
            if not self._done and until < self.deadline:
                raise
            self.agent.expire(self)

    def _awaited(self) -> str:
        return f"the answer of {self.worker.name} to {told(self.what)}"

    def at_once(self, callback: Callable[[CallFuture], None]) -> None:
        """Run ``callback(self)`` when it is done, before everything else, on the thread that brings
        the answer: it must not wait, nor send. There is one such callback."""
        with self._lock:
            first = not self._done
            if first:
                self._first = callback
        if first:
            self.done()
        else:
            callback(self)

    def set_result(self, result: object) -> None:
        self._refuse_again()
        self._complete(result, None)

    def _refuse_again(self) -> None:
        """A program completes it, not an answer: those that are late are dropped."""
        if self._done:
            raise FutureError(
                f"Future of {self.describe()}: it is done; a Future can only be marked completed "
                "once"
            )

    def describe(self) -> str:
        """What is awaited, for messages."""
        return f"{told(self.what)} on worker {self.worker.name!r}"

    def _complete(self, result: Any, error: BaseException | None) -> None:
        """Callbacks may block and call others, and who brings an answer must not: they run on a
        thread of their own (``callbacks``)."""
        with self._lock:
            if self._done:
                return  # it was too late, or its worker is lost
            self._result, self._error = result, error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        if self._first is not None:
            self._first(self)
        if callbacks:
            self.agent.callbacks.put(callbacks)


class _Cause:
    """What must go on for a future that follows from a call's."""

    def __init__(self, future: CallFuture) -> None:
        self._future = future

    def is_completed(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        if not self._future._done:
            self._future._await(self._future.deadline)


def told(what: object) -> str:
    """A function for a message."""
    if isinstance(what, str):
        return what
    if callable(what):
        module = getattr(what, "__module__", None)
        name = getattr(what, "__qualname__", None) or type(what).__qualname__
        return f"{module}.{name}" if module and module != "builtins" else name
    return repr(what)
