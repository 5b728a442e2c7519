"""One of NCCL's communicators, on one device: connected, used from a stream of its own, ended.

It is one whose calls do not wait: what NCCL has begun is asked for until it has settled, in the one
place where ranks wait, so that a peer that never comes ends the wait. Knows the binding and
streams; no header, no verb.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .... import context
from ....errors import CommError
from .library import Library

_GRACE = 10.0  # seconds for a communicator that ends in good order


class Communicator:
    """``comm``: nccl4py's, which may still be connecting; ``places``: which rank of it a rank of
    the group is; ``index``: of the device."""

    def __init__(
        self, library: Library, comm: Any, places: dict[int, int], index: int, name: str
    ) -> None:
        self.library, self.comm, self.places = library, comm, places
        self.index, self.name = index, name
        self.stream = library.platform.stream(index)
        self.handle = library.handle(comm)
        self.over = False
        self._lock = threading.RLock()  # nobody uses what another thread has just ended

    # -- its state ----------------------------------------------------------------------------

    def state(self) -> int:
        """NCCL's code for how it is."""
        with self._lock:
            if self.over:
                return self.library.success
            return int(self.library.raw.comm_get_async_error(self.handle))

    def trouble(self) -> CommError | None:
        """What went wrong in it, on this rank or on another one."""
        code = self.state()
        if code in (self.library.success, self.library.in_progress):
            return None
        return self.library.error(f"group {self.name}", self.comm, code)

    def settle(self, what: Callable[[], str], timeout: float) -> None:
        """Until NCCL has done what it has begun. Raises what went wrong."""
        busy = self.library.in_progress
        if self.state() == busy:
            context.wait_until(lambda: self.state() != busy, what, timeout)
        problem = self.trouble()
        if problem is not None:
            raise problem
        if self.over:
            raise CommError(f"group {self.name}: its communicator was given up")

    # -- use ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def issuing(self, what: Callable[[], str], timeout: float) -> Iterator[Any]:
        """Within it calls of ``raw`` are collected; at its end they are on ``stream``."""
        core = self.library.core
        with self._lock:
            if self.over:
                raise CommError(f"group {self.name}: its communicator was given up")
            try:
                core.group_start()
                try:
                    yield self.library.raw
                finally:
                    core.group_end()
            except self.library.failures as error:
                raise CommError(f"group {self.name}: NCCL refuses: {error}") from error
        self.settle(what, timeout)

    def times(self, factor: float | int | None, dtype: str) -> tuple[int, Callable[[], None]]:
        """The operator of sums whose values are multiplied by ``factor`` first, and what gives it
        up. (nccl4py's communicators would keep every one that was ever made.)"""
        raw, kind = self.library.raw, getattr(self.library.core.NcclDataType, dtype)
        value = np.asarray([factor], kind.numpy_dtype)  # read before the call returns
        where = int(raw.ScalarResidence.HostImmediate)
        op = raw.red_op_create_pre_mul_sum(value.ctypes.data, int(kind), where, self.handle)

        def forget() -> None:
            with self._lock:
                if not self.over:
                    raw.red_op_destroy(op, self.handle)

        return op, forget

    # -- its end ------------------------------------------------------------------------------

    def split(self, color: int | None, key: int, timeout: float) -> Any:
        """nccl4py's communicator of the ranks of one color, or None; all ranks call it."""
        made = self.comm.split(color, key, self.library.config())
        self.settle(lambda: f"group {self.name}: all ranks to divide it", timeout)
        return made if color is not None else None

    def shrink(self, without: Sequence[int], timeout: float) -> Any:
        """nccl4py's communicator of the other ranks; those call it."""
        flag = self.library.core.CommShrinkFlag.ABORT
        made = self.comm.shrink(list(without), self.library.config(), flag)
        self.settle(lambda: f"group {self.name}: the ranks that go on", timeout)
        return made

    def register(self, address: int, nbytes: int) -> Callable[[], None]:
        """Let NCCL read and write memory where it lies. What takes that back."""
        raw = self.library.raw
        with self._lock:
            handle = raw.comm_register(self.handle, address, nbytes)

        def forget() -> None:
            with self._lock:
                if not self.over:
                    raw.comm_deregister(self.handle, handle)

        return forget

    def abort(self) -> None:
        """End it at once; what is in flight ends, done or not. From any thread."""
        with self._lock:
            if self.over:
                return
            self.over = True
        with contextlib.suppress(*self.library.failures):
            self.comm.abort()

    def destroy(self) -> None:
        """End it when all that it was given is done. All ranks call it."""
        with self._lock:
            if self.over:
                return
        try:
            self.comm.finalize()
            self.settle(lambda: f"group {self.name}: its communicator to end", _GRACE)
        except (*self.library.failures, CommError):
            self.abort()
            raise
        with self._lock:
            self.over = True
        self.comm.destroy()
