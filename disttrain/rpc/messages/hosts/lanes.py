"""Streams between two workers as gRPC drives them: what is to be sent, and what has come.

gRPC takes the frames of a stream one after another on a thread of its own (``Outgoing`` is the
iterator that it asks), and gives those that come to whoever asks its own iterator (``Incoming``).
Knows messages and frames; not how a stream begins, nor what its end means.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from .... import context
from ....errors import CommError
from ..contract.message import Limits, Message
from .buffers import ReceiveBuffers
from .frames import Assembler, Frames

MOST_UNSENT = 32 << 20  # bytes of small messages that wait to be sent; who sends more waits, too


class StreamEnded(CommError):
    """The stream has ended, so a message was not sent."""


class _Large:
    """A message whose frames are cut while it is sent."""

    def __init__(self, frames: Frames) -> None:
        self.frames: Iterator[bytes] = iter(frames)
        self.sent = False
        self.bell = threading.Lock()
        self.bell.acquire()

    def finish(self) -> None:
        self.sent = True
        self.bell.release()


class Outgoing:
    """One stream to a peer. ``call`` is gRPC's object for it while it lasts, ``limits`` what the
    peer takes."""

    def __init__(self, lane: int, limits: Limits) -> None:
        self.lane, self.limits, self.ended = lane, limits, False
        self.call: Any = None
        self._queue: SimpleQueue[bytes | _Large | None] = SimpleQueue()
        self._large: _Large | None = None
        self._lock = threading.Lock()
        self._put = self._taken = 0  # bytes of small messages

    def put(self, frame: bytes) -> None:
        """Send one frame of the handshake."""
        self._put += len(frame)
        self._queue.put(frame)

    def send(self, frames: Frames, to: Callable[[], str]) -> None:
        """Send a message; returns when its memory is not looked at any more.

        Raises ``StreamEnded``. ``to`` describes the peer.
        """
        if self.ended:
            raise StreamEnded("the stream has ended")
        small = frames.only
        if small is None:
            large = _Large(frames)
            self._queue.put(large)
            context.wait_until(
                lambda: large.sent or self.ended,
                lambda: f"{to()} to take {frames.size} bytes",
                block=lambda seconds: _wait(large.bell, seconds),
            )
            if not large.sent:
                raise StreamEnded("the stream has ended")
            return
        with self._lock:
            self._put += len(small)
        self._queue.put(small)
        if self._put - self._taken > MOST_UNSENT:
            context.wait_until(
                lambda: self._put - self._taken <= MOST_UNSENT or self.ended,
                lambda: f"{to()} to take {self._put - self._taken} bytes",
            )

    def announce(self, frame: bytes) -> None:
        """Send the one frame of a message whose larger parts follow beside the stream."""
        if self.ended:
            raise StreamEnded("the stream has ended")
        with self._lock:
            self._put += len(frame)
        self._queue.put(frame)

    @property
    def is_active(self) -> bool:
        """Whether gRPC still sends."""
        call = self.call
        return call is not None and call.is_active()

    def finish(self) -> None:
        """End the stream after what has been sent."""
        self._queue.put(None)

    def end(self) -> None:
        """The stream has ended: let go of whoever sends."""
        self.ended = True
        self._queue.put(None)

    # --- gRPC's side -----------------------------------------------------------------------------

    def __iter__(self) -> Outgoing:
        return self

    def __next__(self) -> bytes:
        while True:
            if self._large is not None:
                frame = next(self._large.frames, None)
                if frame is not None:
                    return frame
                self._large.finish()
                self._large = None
            item = self._queue.get()
            if item is None or self.ended:
                raise StopIteration
            if isinstance(item, bytes):
                self._taken += len(item)
                return item
            self._large = item


class Incoming:
    """One stream from a peer. ``frames``: gRPC's iterator, read by one thread at a time.
    ``fetch(links, parts)`` fills what is on so many links beside the stream; ``buffers`` has memory
    for it."""

    def __init__(
        self,
        lane: int,
        frames: Iterator[bytes],
        fetch: Callable[[int, list[memoryview]], None],
        limits: Limits,
        where: str,
        buffers: ReceiveBuffers,
    ) -> None:
        self.lane = lane
        self._frames, self._assembler = frames, Assembler(limits, where, buffers)
        self._fetch = fetch
        self._over = threading.Lock()
        self._over.acquire()

    def read(self) -> Message | None:
        """The next message; None at the end. Raises what gRPC does, ``Assembler.add`` and
        ``fetch``."""
        assembler = self._assembler
        for frame in self._frames:
            message = assembler.add(frame)
            if message is not None:
                if assembler.links:
                    parts, assembler.beside = assembler.beside, []
                    self._fetch(assembler.links, parts)
                return message
        return None

    def over(self) -> None:
        """Nobody will read any more. Called once."""
        self._over.release()

    def wait_over(self) -> None:
        """Keep gRPC's handler here while others read."""
        self._over.acquire()


def _wait(bell: threading.Lock, seconds: float) -> None:
    if bell.acquire(timeout=max(0.0, seconds)):
        bell.release()


class Bell:
    """One thread that waits for an answer of one peer; the ``block`` of ``context.wait_until``.

    An answer that comes while the thread sleeps here is handed to it, and it is the one to deliver
    it: so whoever reads the stream is free for the next message.
    """

    __slots__ = ("__weakref__", "_asleep", "_deliver", "_given", "_lock", "_rung", "call")

    def __init__(self, call: int, deliver: Callable[[Message], None]) -> None:
        self.call = call  # 0: any
        self._deliver = deliver
        self._lock, self._asleep = threading.Lock(), False
        self._given: Message | None = None
        self._rung = threading.Lock()
        self._rung.acquire()

    def __call__(self, seconds: float) -> None:
        self._asleep = True
        try:
            self._rung.acquire(timeout=max(0.0, seconds))
        finally:
            with self._lock:
                self._asleep = False
                given, self._given = self._given, None
            if given is not None:
                self._deliver(given)

    def give(self, message: Message) -> bool:
        """Hand over an answer, if somebody sleeps here."""
        with self._lock:
            if not self._asleep or self._given is not None:
                return False
            self._given = message
        self.ring()
        return True

    def ring(self) -> None:
        try:
            self._rung.release()
        except RuntimeError:  # it has been rung before
            pass


class Bells:
    """All who wait for answers of one peer. A bell lasts as long as somebody holds it."""

    def __init__(self, deliver: Callable[[Message], None]) -> None:
        self._deliver = deliver
        self._bells: weakref.WeakValueDictionary[int, Bell] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def hang(self, call: int) -> Bell:
        bell = Bell(call, self._deliver)
        with self._lock:
            self._bells[id(bell)] = bell
        return bell

    def give(self, message: Message) -> bool:
        """Hand an answer to who waits for it and nothing else; False where nobody does."""
        return any(bell.call == message.call and bell.give(message) for bell in self._hung())

    def ring(self, call: int) -> None:
        """An answer to ``call`` has been delivered; 0: whoever waits is to look."""
        for bell in self._hung():
            if not (call and bell.call) or bell.call == call:
                bell.ring()

    def _hung(self) -> list[Bell]:
        with self._lock:
            return list(self._bells.values())
