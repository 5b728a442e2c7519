"""What else reaches a rank from outside, in a replay: meetings, stores, and messages of RPC, which
come in the recorded order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import context
from ...comm.calls.header import DTYPES
from ...comm.store import FileStore, Store, TCPStore
from ...comm.transports import selection
from ...rpc.calls import endpoints
from ...rpc.messages.contract.endpoint import Block, Endpoint, OnLost, OnMessage
from ...rpc.messages.contract.message import Message
from ...stand_ins import StandIns
from ..log.faults import from_data
from ..log.frames import Frame
from ..log.keeping import drawn_key, kind_of, message_key, store_key
from ..log.movements import hash_of
from .bookkeeping import is_bookkeeping
from .session import ReplayEnds, Session
from .transport import ReplayTransport, raise_error

_LOOK_EVERY = 0.05
_TYPES = {d.name: d for d in DTYPES}


class Outside:
    """Answers for all that is outside of the rank, from a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._places = StandIns()

    def stand_in(self) -> None:
        """From now on, in this process."""
        for kind in (TCPStore, FileStore):
            self._places.put(kind, "__init__", self._opened)
            self._places.put(kind, "_call", lambda own: _function(self._asked))
            self._places.put(kind, "close", lambda own: _nothing)
        slots = context.current().slots
        slots[endpoints.OPENER] = lambda make: ReplayEndpoint(self.session)
        slots[context.DRAWN_SLOT], slots[selection.AROUND] = self._drawn, self._connect
        slots[context.REPLAYED_SLOT] = self

    def stand_aside(self) -> None:
        """No more."""
        self._places.take_back()
        for slot in (
            endpoints.OPENER, context.DRAWN_SLOT, selection.AROUND, context.REPLAYED_SLOT
        ):  # fmt: skip
            context.current().slots.pop(slot, None)

    def _drawn(self, name: str, value: int) -> int:
        return self.session.drawn(drawn_key(name), value)

    def _connect(self, own: Callable, backend: Any, meeting: Any) -> ReplayTransport:
        text = f"connect({meeting.rank} of {meeting.size})"
        end = self.session.end(self.session.call("meeting", "connect", text))
        raise_error(end)
        made = ReplayTransport(self.session, end.meta["result"]["made"])
        made.between = selection.between
        return made

    def _opened(self, own: Callable) -> Callable:
        session = self.session

        def init(store: Any, *args: Any, **how: Any) -> None:
            end = session.end(session.call("stores", kind_of(store)))
            raise_error(end)
            Store.__init__(store, how.get("timeout"))
            vars(store).update(
                host="", port=0, _server=None, is_master=False, epoch=0,
                _token=bytes(32), _told=False, _asked="localhost", path="",
                _counted=False, libuvBackend=True,
            )  # fmt: skip
            vars(store).update(end.meta["result"])

        return init

    def _asked(self, store: Any, request: Any, timeout: float) -> list[bytes]:
        session = self.session
        end = session.end(session.call(store_key(request), "store"))
        raise_error(end)
        data, out, at = session.bytes_of(end), [], 0
        for size in end.meta["result"]:
            out.append(bytes(data[at : at + size]))
            at += size
        return out


def _function(method: Callable) -> Callable:
    """A bound method as a function, which may stand in a class."""

    def call(*args: Any, **how: Any) -> Any:
        return method(*args, **how)

    return call


def _nothing(store: Any) -> None:
    """A store has nothing to close."""


class ReplayEndpoint(Endpoint):
    """One worker's end of connections that are recorded."""

    def __init__(self, session: Session) -> None:
        number = session.call("endpoints", "open")
        told = session.end(number)
        raise_error(told)
        super().__init__(told.meta["result"]["me"], bytes(32))
        self.address, self.session = told.meta["result"]["address"], session
        self._start = number
        self._came, self._closed = threading.Condition(), False

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._place = context.current()
        self._thread("replay messages", self._deliver)

    def _thread(self, name: str, body: Callable[[], None]) -> None:
        with context.attach(self._place):
            context.start_thread(body, name)

    def _deliver(self) -> None:
        """All messages, each when it has its turn."""
        session = self.session
        ends = [
            f.at for f in session.log.frames
            if f.meta.get("key") == "endpoints" and f.at > self._start
        ]  # fmt: skip
        try:
            for frame in session.arrivals():
                if not self._start < frame.at < (ends[0] if ends else len(session.log.frames)):
                    continue
                session.await_frame(frame)
                if self._closed:
                    return
                self._bring(frame)
                session.took(frame)
                with self._came:
                    self._came.notify_all()
        except ReplayEnds:
            return

    def _bring(self, frame: Frame) -> None:
        told = frame.meta
        if "lost" in told:
            self._on_lost(told["peer"], from_data(told["lost"]))
            return
        message = _message(told, bytearray(self.session.bytes_of(frame)))
        if message.answers:
            message.call = self.session.numbers.get(message.call, message.call)
            self._on_message(told["peer"], message)
        else:
            self._thread("replay handler", lambda: self._on_message(told["peer"], message))

    def introduce(self, peer: int, address: str) -> None:
        pass

    def connect(self, peer: int, address: str) -> None:
        number = self.session.call(f"link {peer}", "connect")
        raise_error(self.session.end(number))

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        session = self.session
        if is_bookkeeping(message):
            self._answer(peer, message)
            return

        def chosen(number: int) -> None:
            if not message.answers and message.call:
                session.numbers[session.log.frames[number].meta["call"]] = message.call

        number = session.call(
            message_key(peer, message), "rpc",
            given=hash_of([a.reshape(-1) for a in message.arrays]), chosen=chosen,
        )  # fmt: skip
        end = session.ends.get(number)
        if end is not None:
            raise_error(end)

    def _answer(self, peer: int, message: Message) -> None:
        frame = self.session.bookkeeping.answer(peer)
        if frame is None:
            return

        def come() -> None:
            answer = _message(frame.meta, bytearray(self.session.bytes_of(frame)))
            answer.call = message.call
            self._on_message(peer, answer)
            with self._came:
                self._came.notify_all()

        self._thread("replay bookkeeping", come)

    def waiting(self, peer: int, call: int = 0) -> Block:
        def block(seconds: float) -> None:
            with self._came:
                self._came.wait(min(seconds, _LOOK_EVERY))

        return block

    def disconnect(self, peer: int) -> None:
        pass

    def close(self) -> None:
        self._closed = True


def _message(told: dict[str, Any], data: bytearray) -> Message:
    """A message as it came, in memory of its own."""
    view, at = memoryview(data), told["head"] + told["payload"]
    arrays = []
    for name, shape in told["arrays"]:
        dtype = _TYPES[name]
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        arrays.append(np.array(np.frombuffer(view[at : at + nbytes], dtype)).reshape(shape))
        at += nbytes
    head, payload = bytes(view[: told["head"]]), bytes(view[told["head"] :][: told["payload"]])
    return Message(told["kind"], told["call"], told["answers"], head, payload, arrays)


__all__ = ["Outside", "ReplayEndpoint"]
