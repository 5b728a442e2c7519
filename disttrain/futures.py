"""Futures: results that come later, with callbacks. Knows nothing of who makes a result."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from . import context
from .errors import FutureError

T = TypeVar("T")
S = TypeVar("S")

_FOR_EVER = float("inf")


class Future(Generic[T]):
    """A result that is not there yet. Whoever makes it calls ``set_result`` or ``set_exception``,
    once; anybody may wait for it or leave a callback, from any thread.

    ``devices`` are those that a result may lie on; all of them are this host's memory here.

    ``waits_for``: what must go on for a result to come, where no other thread brings it (each with
    ``wait()`` and ``is_completed()``). It goes on where somebody waits for this future, or for one
    that follows from it, or asks whether it is done.
    """

    def __init__(
        self, *, devices: Sequence[Any] | None = None, waits_for: Sequence[Any] = ()
    ) -> None:
        self.devices = list(devices or ())
        self._waits_for = tuple(waits_for)
        self._lock = threading.Lock()
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Is there a result or an exception?"""
        if not self._done:
            for cause in self._waits_for:
                if not cause.is_completed():
                    break
        return self._done

    def wait(self) -> T:
        """Block until it is done; the result, or raises the exception."""
        return self.wait_for(_FOR_EVER)

    def wait_for(self, seconds: float, what: str = "the result of a Future") -> T:
        """As ``wait``; ``WaitTimeout`` when ``what`` is not there after so many seconds."""
        if self._done:
            return self.value()
        for cause in self._waits_for:
            cause.wait()
        context.wait_until(self.done, lambda: what, seconds)
        return self.value()

    def value(self) -> T:
        """The result of a future that is done, or raises its exception."""
        if not (self._done or self.done()):
            raise FutureError("Future.value: it is not done yet; call wait(), which waits for it")
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: T) -> None:
        """Make it done, and run the callbacks in the order in which they were left."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Make it done: ``wait`` and ``value`` raise ``result``."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def _complete(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._done:
                raise FutureError(
                    f"Future: {'an exception' if error else 'a result'} given to one that is done; "
                    "a Future can only be marked completed once"
                )
            self._result, self._error = result, error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _when_done(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of ``callback(self)``, which runs when this one is done (at once if it is), in
        the thread that makes it so. What it raises, the new one's ``wait`` raises as a
        ``FutureError``."""
        _check_callback("then", callback)
        child: Future[S] = Future(devices=self.devices, waits_for=self._waits_for)

        def run() -> None:
            try:
                result = callback(self)
            except Exception as error:
                child.set_exception(_of_callback(error))
            else:
                child.set_result(result)

        self._when_done(run)
        return child

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Run ``callback(self)`` when it is done. What it raises is printed."""
        _check_callback("add_done_callback", callback)

        def run() -> None:
            try:
                callback(self)
            except Exception:
                traceback.print_exc()

        self._when_done(run)

    def __reduce__(self) -> tuple:
        raise FutureError("Can not pickle torch.futures.Future: wait() for it, and take the result")


def _check_callback(name: str, callback: Callable[..., Any]) -> None:
    if not callable(callback):
        raise TypeError(
            f"{name}(): incompatible function arguments. {type(callback).__name__} was given; "
            "needed is a function of the future"
        )


def _of_callback(error: Exception) -> FutureError:
    told = FutureError(
        f"Got the following error when running the callback: {type(error).__name__}: {error}"
    )
    told.__cause__ = error
    return told


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of the list ``futures``, done when all are, or with the exception of the first that
    fails as soon as it does."""
    causes = [cause for future in futures for cause in future._waits_for]
    out: Future[list[Future]] = Future(waits_for=causes)
    lock, left, settled = threading.Lock(), len(futures), False

    def ended(future: Future) -> None:
        nonlocal left, settled
        with lock:
            left -= 1
            settles = not settled and (left == 0 or future._error is not None)
            settled = settled or settles
        if settles:
            out._complete(futures, future._error)

    for future in futures:
        future._when_done(partial(ended, future))
    if not futures:
        out.set_result(futures)
    return out


def wait_all(futures: list[Future]) -> list:
    """The results of all, in order, or raises the exception of the first that fails at once."""
    return [future.wait() for future in collect_all(futures).wait()]


__all__ = ["Future", "collect_all", "wait_all"]
