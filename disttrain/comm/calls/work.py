"""Work: an operation that was started and can be waited for.

A transport subclasses ``Work`` with its way of going on (``_poll``, ``_block``). Knows nothing of
arrays or memory.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ...futures import Future


class Work:
    """An operation in flight. ``result`` is what it gives (often the array it was called with)."""

    __slots__ = ("_callbacks", "_done", "_error", "_future", "_result", "outputs")

    def __init__(self) -> None:
        self._done = False
        self._future: Future | None = None
        self.outputs: list | None = None  # what a future of it gives, if not the result
        self._error: BaseException | None = None
        self._result: Any = None
        self._callbacks: list[Callable[[Work], None]] = []

    def is_completed(self) -> bool:
        """Has it ended, well or not? Also lets it go on as far as it can without waiting."""
        if not self._done:
            self._poll()
        return self._done

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """Block until it has ended and return what it gives, or raise what it failed with.

        ``timeout`` in seconds or as a timedelta (default: the group's). Raises ``WaitTimeout``,
        ``PeerFailed``, ``CollectiveMismatch``. A work on tensors returns True, as in PyTorch.
        """
        if not self._done:
            if isinstance(timeout, timedelta):
                timeout = timeout.total_seconds() or None  # none is how PyTorch's programs say it
            self._block(timeout)
        if self._future is not None:
            settle(self._future, self)
        if self._error is not None:
            raise explained(self._error)
        return self._result if self.outputs is None else True

    def synchronize(self) -> None:
        """``wait``, where a stream of a device would only be told to."""
        self.wait()

    def is_success(self) -> bool:
        """Has it ended well?"""
        return self.is_completed() and self._error is None

    def source_rank(self) -> int:
        """The rank in the group from which a receive that has ended got its data."""
        self.wait()
        return self._result

    _source_rank = source_rank

    def get_future(self) -> Future:
        """A ``Future`` of the list of results.

        Its callbacks run where this rank waits for it (or asks whether it is done), never in the
        middle of another call: so what they communicate comes in one order on all ranks.
        """
        if self._future is None:
            self._future = Future(waits_for=[_Drive(self)])
        return self._future

    def result(self) -> Any:
        """The tensors that it was called for; waits for it."""
        done = self.wait()
        return done if self.outputs is None else self.outputs

    def exception(self) -> BaseException | None:
        """What it failed with, or None (also while it still runs)."""
        return self._error

    def then(self, fn: Callable[[Any], Any]) -> Work:
        """A Work whose result is ``fn(result)``; ``fn`` runs where this work's end is noticed."""
        return _Then(self, fn)

    def on_end(self, callback: Callable[[Work], None]) -> None:
        """Call ``callback(work)`` when it has ended, at once if it has."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _end(self, result: object = None, error: BaseException | None = None) -> None:
        self._result, self._error, self._done = result, error, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def _poll(self) -> None:
        """Go on as far as possible without waiting."""
        raise NotImplementedError

    def _block(self, timeout: float | None) -> None:
        """Go on until the end."""
        raise NotImplementedError


def explained(error: BaseException) -> BaseException:
    """What to raise for an error of a work: one that all ranks can say more of when they wait for
    it (``explain``) is asked to."""
    explain = getattr(error, "explain", None)
    return error if explain is None else explain()


def settle(future: Future, work: Work) -> None:
    """Tell the future of a work that has ended."""
    if future._done:
        return
    if work._error is not None:
        future.set_exception(explained(work._error))
    else:
        future.set_result([work._result] if work.outputs is None else work.outputs)


class _Drive:
    """A work as what its future waits for."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def is_completed(self) -> bool:
        work = self._work
        if work.is_completed() and work._future is not None:
            settle(work._future, work)
        return work._done

    def wait(self) -> None:
        work = self._work
        if not work._done:
            work._block(None)
        if work._future is not None:
            settle(work._future, work)


class Done(Work):
    """A work that has ended already."""

    __slots__ = ()

    def __init__(self, result: object = None) -> None:
        super().__init__()
        self._end(result)


class _Then(Work):
    """The work after another one."""

    __slots__ = ("_before",)

    def __init__(self, before: Work, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        self._before = before
        before.on_end(lambda ended: self._follow(ended, fn))

    def _follow(self, ended: Work, fn: Callable[[Any], Any]) -> None:
        if ended._error is not None:
            self._end(error=ended._error)
            return
        try:
            self._end(fn(ended._result))
        except Exception as error:
            self._end(error=error)

    def _poll(self) -> None:
        self._before.is_completed()

    def _block(self, timeout: float | None) -> None:
        if not self._before._done:
            self._before._block(timeout)


class Within(Work):
    """Another work, with a time limit of its own: ``wait`` lasts ``seconds`` at most, unless it is
    told another limit."""

    __slots__ = ("_of", "_seconds")

    def __init__(self, of: Work, seconds: float) -> None:
        super().__init__()
        self._of, self._seconds = of, seconds
        of.on_end(lambda ended: self._end(ended._result, ended._error))

    def _poll(self) -> None:
        self._of.is_completed()

    def _block(self, timeout: float | None) -> None:
        self._of._block(self._seconds if timeout is None else timeout)


class Together(Work):
    """Several works as one; the result is the list of their results."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[Work]) -> None:
        super().__init__()
        self._parts = parts

    def _poll(self) -> None:
        if all(part.is_completed() for part in self._parts):
            self._finish()

    def _block(self, timeout: float | None) -> None:
        for part in self._parts:
            if not part._done:
                part._block(timeout)
        self._finish()

    def _finish(self) -> None:
        error = next((p._error for p in self._parts if p._error is not None), None)
        self._end([p._result for p in self._parts], error)
