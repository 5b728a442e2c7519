"""The transport of a rank that is replayed: every verb brings what it brought when recorded.

Work ends where it ended then: before the call that came after its end, or when it is waited for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...comm.calls.header import Call
from ...comm.calls.reduce_ops import ReduceOp
from ...comm.calls.transport import Swap, Transport
from ...comm.calls.work import Work
from ..log.faults import from_data
from ..log.frames import Frame
from ..log.movements import VERBS, Moved, copy_own, fill, hash_of
from .session import Pending, Session


class ReplayWork(Work):
    """A work of the recording."""

    __slots__ = ("pending", "session")

    def __init__(self, session: Session, number: int, apply: Callable[[Frame], Any]) -> None:
        super().__init__()
        self.session = session

        def finish() -> None:
            end = self.pending.end
            assert end is not None
            if "error" in end.meta:
                self._end(error=from_data(end.meta["error"]))
            else:
                self._end(apply(end))

        self.pending: Pending = session.pend(number, finish)

    def _poll(self) -> None:
        end = self.pending.end
        if end is not None and self.session.has_come(end, self.pending.number):
            self.session.settle(self.pending)

    def _block(self, timeout: float | None) -> None:
        given_up = self.session.waits.get(self.pending.number)
        if given_up:
            raise from_data(given_up.popleft().meta["error"])
        self.session.settle(self.pending)


class ReplayTransport(Transport):
    """See ``Transport``. ``told``: what the recording says of the one that it stands for."""

    def __init__(self, session: Session, told: dict[str, Any]) -> None:
        super().__init__(
            told["rank"], told["size"], told["name"], told["timeout"], told["epoch"]
        )  # fmt: skip
        self.session = session
        self.kind, self.shares = told["kind"], told["shares"]
        self.divides, self.sealed = told["divides"], told["sealed"]
        self._shared: dict[int, weakref.ref[ReplayShared]] = {}  # by the calls that made them

    def _verb(
        self, verb: str, call: Call, args: tuple, async_op: bool, name: str = ""
    ) -> Work | None:
        session, moved = self.session, VERBS[verb](self.rank, *args)
        number = session.call(
            f"{self.name} {moved.key}".strip(), name or call.op, call.text, call.tail.hex(),
            hash_of(moved.given),
        )  # fmt: skip
        frame = session.ends.get(number)
        late = async_op if frame is None else frame.meta["late"]
        if late:
            return ReplayWork(session, number, lambda end: self._apply(call, moved, end))
        self._ended(session.end(number), call, moved)
        return None

    def _ended(self, end: Frame, call: Call, moved: Moved) -> Any:
        raise_error(end)
        return self._apply(call, moved, end)

    def _apply(self, call: Call, moved: Moved, end: Frame) -> Any:
        if not fill(moved.got, self.session.bytes_of(end)):
            self.session.structural(
                f"{call.text}: {end.size} bytes came, and the program has room for "
                f"{sum(a.nbytes for a in moved.got)}"
            )
        copy_own(moved)
        return end.meta.get("result")

    # -- verbs ---------------------------------------------------------------------------------

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        return self._verb("barrier", call, (), async_op)

    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        return self._verb("broadcast", call, (array, root), async_op)

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        return self._verb("all_reduce", call, (array, op), async_op)

    def all_reduce_each(
        self, calls: Sequence[Call], arrays: Sequence[np.ndarray], op: ReduceOp
    ) -> int:
        first = calls[0]
        number = self.session.call(
            self.name, "all_reduce_each", first.text, first.tail.hex(), hash_of(arrays)
        )
        end = self.session.end(number)
        raise_error(end)
        done = int(end.meta["result"])
        self._apply(first, Moved([], arrays[:done]), end)
        return done

    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        return self._verb("all_gather", call, (outs, array), async_op)

    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        return self._verb("reduce_scatter", call, (out, ins, op), async_op)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        return self._verb("all_to_all", call, (outs, ins), async_op)

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        return self._message("send", call, (array, dst, tag))

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        return self._message("recv", call, (array, src, tag))

    def _message(self, verb: str, call: Call, args: tuple) -> Work:
        work = self._verb(verb, call, args, True, verb)
        assert work is not None  # messages are works in every recording
        return work

    # -- groups --------------------------------------------------------------------------------

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> ReplayTransport | None:
        number = self.session.call(self.name, "split", call.text, call.tail.hex())
        frame = self.session.ends.get(number)
        told = {} if frame is None else frame.meta.get("result", {})
        if swap is not None:
            for row in told.get("swapped", ()):
                swap(np.array(row, np.int64))
        raise_error(self.session.end(number))
        made = told["made"]
        return None if made is None else ReplayTransport(self.session, made)

    def share(self, call: Call, nbytes: int) -> Any:
        number = self.session.call(self.name, "share", call.text, call.tail.hex())
        end = self.session.end(number)
        raise_error(end)
        there = end.meta["result"]["there"]
        if not there:
            return None
        made = ReplayShared(self.session, f"{self.name} shared {number}", nbytes, self._shared)
        self._shared[number] = weakref.ref(made)
        return made

    def shrink(self, timeout: float | None, exclude: Any = ()) -> tuple[Transport, list[int]]:
        end = self.session.end(self.session.call(self.name, "shrink"))
        raise_error(end)
        told = end.meta["result"]
        return ReplayTransport(self.session, told["made"]), told["before"]

    def close(self, call: Call | None) -> None:
        if call is not None:
            number = self.session.call(self.name, "close", call.text, call.tail.hex())
            raise_error(self.session.end(number))


class ReplayShared:
    """Memory that all ranks saw: in each turn it has what all had written. See ``shm.Shared``."""

    def __init__(
        self, session: Session, key: str, nbytes: int, beside: dict[int, weakref.ref[ReplayShared]]
    ) -> None:  # fmt: skip
        """``beside``: all of the group."""
        self.session, self._key, self._beside = session, key, beside
        self.bytes = np.zeros(nbytes, np.uint8)
        self._before = self.bytes.copy()

    def open(self) -> None:
        """This rank's part is written; all others' are, too."""
        self.announce()
        self.wait_open()

    def announce(self) -> None:
        """This rank's part is written."""

    def wait_open(self) -> None:
        """The others' parts are as they were."""
        end = self.session.end(self.session.call(self._key, "open"))
        raise_error(end)
        data, at = np.frombuffer(self.session.bytes_of(end), np.uint8), 0
        for number in end.meta["result"]:
            one = self._beside[number]()
            if one is None:
                self.session.structural("shared weights: there are fewer than when recorded")
            assert one is not None
            one.came(data[at : at + one.bytes.size])
            at += one.bytes.size

    def came(self, data: np.ndarray) -> None:
        """This is what all ranks have written. Own bytes that have changed must be the same."""
        if ((self.bytes != self._before) & (self.bytes != data)).any():
            self.session.differs("shared weights: what this rank has written differs")
        self.bytes[:] = data
        self._before = data.copy()

    def close(self, give_back: bool = False) -> None:
        """This rank reads nothing any more."""

    def wait_closed(self) -> None:
        """It may write."""


def raise_error(end: Frame) -> None:
    """Raise what a call raised."""
    if "error" in end.meta:
        raise from_data(end.meta["error"])


__all__ = ["ReplayShared", "ReplayTransport", "ReplayWork", "raise_error"]
