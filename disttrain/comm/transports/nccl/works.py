"""An operation of a device in flight: it ends at an event, which streams wait for and hosts need
not.

``wait`` makes the caller's current stream wait, as in PyTorch; the host waits only where it is
asked for (a time limit, ``TORCH_NCCL_BLOCKING_WAIT=1``, a barrier). Knows streams and events; no
NCCL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .... import context
from ....backends.device.array import Located
from ...calls.header import Call
from ...calls.work import Work, explained, settle


class _OnStream(Work):
    """What ends in a stream: ``_block`` makes the caller's stream wait for it, ``of`` is the
    transport."""

    __slots__ = ()
    of: Any

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """The caller's stream waits for it; the host, too, with ``timeout`` (seconds)."""
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds() or None
        self._block(timeout)
        if self._future is not None:
            settle(self._future, self)
        if self._error is not None:
            self.of.told = True
            raise explained(self._error)
        return self._result if self.outputs is None else True

    def synchronize(self) -> None:
        self.wait()

    def _poll(self) -> None:
        self.is_completed()

    def then(self, fn: Callable[[Any], Any]) -> Work:
        return _After(self, fn)

    def _block(self, timeout: float | None) -> None:
        raise NotImplementedError


class DeviceWork(_OnStream):
    """``event`` is the end of it; None until what it was started together with is."""

    __slots__ = (
        "alone",
        "at",
        "blocking",
        "call",
        "event",
        "header",
        "index",
        "limit",
        "of",
        "result_of",
    )

    def __init__(
        self, of: Any, call: Call, index: int, result: Any, blocking: bool = False
    ) -> None:
        """``of``: the transport; ``index``: of the device; ``blocking``: waits last until that is
        done."""
        super().__init__()
        self.of, self.call, self.index, self.blocking = of, call, index, blocking
        self.at = context.now()
        self.limit = of.timeout
        self.event: Any = None
        self.header: Any = None  # of the agreement; None once all have called the same
        self.alone = False  # whether it is a message, which is agreed on apart from all others
        self.result_of = result

    def what(self) -> str:
        """The wait for people."""
        return f"{self.call.text}; the device has not finished it"

    def reached(self) -> bool:
        """Whether the device has done it, or never will."""
        return self._error is not None or (self.event is not None and self.event.query())

    def fail(self, error: BaseException) -> None:
        """It will not end well."""
        if self._error is None:
            self._end(error=error)

    def is_completed(self) -> bool:
        self.of.look()
        if self.reached() and not self._done:
            self._joined()
        return self._error is not None or (self._done and self.reached())

    def _block(self, timeout: float | None) -> None:
        if self._error is None and self.event is None:
            self.of.flush()
        if self._error is None:
            self.of.join(self.event, self.index)
            if timeout is not None or self.blocking:
                limit = self.limit if timeout is None else timeout
                self.of.wait_on_host(self, limit)
        if not self._done:
            self._joined()

    def _joined(self) -> None:
        """The result may be used in the caller's stream."""
        self._end(self.result_of)
        self.result_of = None


class _After(_OnStream):
    """``fn`` of a work's result, run in the stream that first waits for it."""

    __slots__ = ("_before", "_event", "_fn")

    def __init__(self, before: Any, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        self._before, self._fn = before, fn
        self._event: Any = None

    def is_completed(self) -> bool:
        if not self._before.is_completed():
            return False
        self._run()
        return self._error is not None or self._event is None or self._event.query()

    def exception(self) -> BaseException | None:
        return self._before.exception() if self._error is None else self._error

    @property
    def of(self) -> Any:
        return self._before.of

    @property
    def index(self) -> int:
        return self._before.index

    def _block(self, timeout: float | None) -> None:
        if self._done:
            if self._event is not None:
                self.of.join(self._event, self.index)
            return
        self._before._block(timeout)
        self._run()

    def _run(self) -> None:
        if self._done:
            return
        error = self._before._error
        if error is not None:
            self._end(error=error)
            return
        try:
            with Located(self.of.platform, self.index):
                result = self._fn(self._before._result)
        except Exception as problem:
            self._end(error=problem)
            return
        self._event = self.of.mark(self.index)
        self._end(result)
