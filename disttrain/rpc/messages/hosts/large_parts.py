"""Large parts of messages between hosts: on links of their own, beside the streams.

A stream says what a message is and how large its parts are; their bytes follow on the links of that
stream (``stripes``), read from the arrays where they lie and written to where they belong. Who
reads a stream reads its links, so messages keep their order. Links are opened with the first
message that needs them; a worker whose host cannot be reached by them is sent everything by its
stream.

Knows links and bytes; not what messages mean, nor when a peer is lost.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from functools import partial

from .... import context
from ....comm.sockets.handshake import Identity, Refused
from ....comm.sockets.link import Closed, Link
from ....comm.sockets.listener import Listener, call_on
from ....errors import CommError
from ..contract.message import Limits
from . import small_answers
from .frames import Frames
from .lanes import Outgoing
from .small_answers import Answers
from .stripes import LINKS, how_many, stripes
from .threads import Threads

_SAID = struct.Struct("<BB16s")  # which stream's, which of its links, and the life it belongs to
_SOON = 5.0  # seconds for a link whose other end has opened it

_log = logging.getLogger("disttrain.messaging")

Views = list[memoryview]


class Wires:
    """The links to and from one peer."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.where: tuple[str, int] | None = None  # its listener; None: it has none that we reach
        self.mine = b""  # tells it which relation our links belong to
        self.there: dict[int, list[Link]] = {}  # to the peer, by stream
        self.here: dict[tuple[int, int], Link] = {}  # from it, by stream and place
        self.sending: dict[int, threading.Lock] = {}
        self.answers: Answers | None = None  # to the peer, for small ones
        self.lock = threading.Lock()
        self.over = False

    def lead_to(self, host: str, port: int, mine: bytes) -> None:
        """The peer has said where its listener is."""
        if not self.mine:
            self.where, self.mine = (host, port), mine

    def shut(self, incoming: bool = True) -> None:
        """End the links: whoever sends there finds out, and with ``incoming`` who receives."""
        with self.lock:
            self.over |= incoming
            links = [link for lane in self.there.values() for link in lane]
            links += self.here.values() if incoming else ()
        for link in links:
            link.shut()

    def close(self) -> None:
        """Give the descriptors back. What was sent still arrives; who receives is told."""
        with self.lock:
            self.over = True
            there = [link for lane in self.there.values() for link in lane]
            here = list(self.here.values())
            self.there.clear()
            self.here.clear()
        for link in here:
            link.shut()
        for link in there + here:
            link.close()


class LargeParts:
    """All links of one worker. ``find(number, life)``: the wires of the peer that has this life."""

    def __init__(
        self,
        me: Identity,
        host: str,
        limits: Limits,
        threads: Threads,
        find: Callable[[int, bytes], Wires | None],
        hear: Callable[[int, Link], None],
    ) -> None:
        """``hear(number, link)``: small answers of that peer will come on ``link``."""
        self._me, self._threads, self._find, self._hear = me, threads, find, hear
        self._seconds = limits.handshake_seconds
        self._listener = Listener(
            me, host, self._admit, self._take,
            seconds=limits.handshake_seconds, strangers=limits.strangers,
        )  # fmt: skip
        self.port = self._listener.port

    @property
    def sealed(self) -> bool:
        return self._me.sealed

    # --- sending ---------------------------------------------------------------------------------

    def send(self, wires: Wires, stream: Outgoing, frames: Frames) -> bool:
        """Send a message on ``stream`` and its links; False, with nothing sent, where the peer has
        no links. Raises ``Closed`` or ``StreamEnded``, where it may not have arrived."""
        parts = frames.beside
        sizes = [len(part) for part in parts]
        with _Turn(wires, stream.lane):
            links = self._links(wires, stream, how_many(sum(sizes)), stream.lane)
            if not links:
                return False
            stream.announce(frames.announcement(len(links)))
            plan = stripes(sizes, len(links))
            self._together(links, [_sender(*each, parts) for each in zip(links, plan)])
        return True

    def answer(self, wires: Wires, stream: Outgoing, frame: bytes) -> bool:
        """Send a small answer; False, with nothing sent, where the peer has no links. ``stream``:
        where it would go otherwise. Raises ``Closed``."""
        answers = wires.answers
        if answers is None:
            with _Turn(wires, small_answers.LANE):
                if wires.answers is None:
                    links = self._links(wires, stream, 1, small_answers.LANE)
                    if not links:
                        return False
                    wires.answers = Answers(links[0])
                answers = wires.answers
        answers.send(frame)
        return True

    def _links(self, wires: Wires, stream: Outgoing, count: int, lane: int) -> list[Link]:
        """The first ``count`` links of a lane, opened where they are missing."""
        links = wires.there.setdefault(lane, [])
        while wires.where is not None and len(links) < count:
            said = _SAID.pack(lane, len(links), wires.mine)
            try:
                link, _ = call_on(self._me, wires.number, *wires.where, said, self._seconds)
            except Refused as error:
                if wires.over or stream.ended:
                    raise Closed("the connection to it has ended") from None
                self._do_without(wires, error)
                break
            with wires.lock:
                over = wires.over
                if not over:
                    links.append(link)
            if over:
                link.close()
                raise Closed("the connection to it has ended")
        return links[:count]

    def _do_without(self, wires: Wires, why: Refused) -> None:
        """Fewer links, or none: slower, but nothing fails."""
        wires.where = None
        _log.warning(
            "messages of worker %d: large tensors travel slowly to worker %d: no link could be "
            "opened beside its streams (%s)",
            self._me.number, wires.number, why,
        )  # fmt: skip

    def _together(self, links: list[Link], jobs: list[Callable[[], None]]) -> None:
        """Run ``jobs`` at the same time, one of them here; all have ended when this returns."""
        errors: list[BaseException] = []
        bell = threading.Semaphore(0)

        def run(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:
                errors.append(error)
                for link in links:  # half a message: nothing that follows could be told from it
                    link.shut()

        def beside(job: Callable[[], None]) -> None:
            run(job)
            bell.release()

        here, others = jobs[:1], 0
        for job in jobs[1:]:
            try:
                self._threads.run(partial(beside, job))
                others += 1
            except RuntimeError:  # the system gives no more threads: one after the other
                here.append(job)
        for job in here:
            run(job)
        run(lambda: _wait(bell, others))
        if errors:
            raise errors[0]

    # --- receiving -------------------------------------------------------------------------------

    def receive(self, wires: Wires, lane: int, count: int, parts: Views) -> None:
        """Fill ``parts``, which the peer has announced on ``count`` links. Raises ``Closed``, or
        ``CommError`` for what no peer announces."""
        if count > LINKS or not parts:
            raise CommError(f"{len(parts)} parts of a message on {count} links were announced")
        keys = [(lane, place) for place in range(count)]
        deadline = context.now() + _SOON
        while not all(key in wires.here for key in keys):  # it is being taken in
            if wires.over or context.now() > deadline:
                raise Closed("a link that was announced is not there")
            context.sleep(0.0005)
        links = [wires.here[key] for key in keys]
        plan = stripes([len(part) for part in parts], count)
        self._together(links, [_receiver(*each, parts) for each in zip(links, plan)])

    def _admit(self, number: int, said: bytes) -> bytes:
        if len(said) != _SAID.size:
            raise Refused("it does not speak this protocol")
        _, place, life = _SAID.unpack(said)
        if self._find(number, life) is None or place >= LINKS:
            raise Refused("this worker knows no stream that such a link belongs to")
        return b""

    def _take(self, link: Link) -> None:
        lane, place, life = _SAID.unpack(link.said)
        wires = self._find(link.number, life)
        if wires is not None:
            with wires.lock:
                taken = not wires.over and (lane, place) not in wires.here
                if taken:
                    wires.here[lane, place] = link
            if taken:
                if lane == small_answers.LANE:
                    self._hear(link.number, link)
                return
        link.close()

    def close(self) -> None:
        self._listener.close()


class _Turn:
    """The right to send on one stream and its links, one message after another."""

    def __init__(self, wires: Wires, lane: int) -> None:
        with wires.lock:
            self._lock = wires.sending.setdefault(lane, threading.Lock())
        self._number = wires.number

    def __enter__(self) -> None:
        mine = self._lock.acquire(False)

        def block(seconds: float) -> None:
            nonlocal mine
            mine = self._lock.acquire(timeout=max(0.0, seconds))

        context.wait_until(
            lambda: mine, lambda: f"worker {self._number} to take what others send", None, block
        )

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def _sender(link: Link, pieces: list, parts: Views) -> Callable[[], None]:
    return lambda: link.send(*(parts[part][start:end] for part, start, end in pieces))


def _receiver(link: Link, pieces: list, parts: Views) -> Callable[[], None]:
    def receive() -> None:
        for part, start, end in pieces:
            link.receive(parts[part][start:end])

    return receive


def _wait(bell: threading.Semaphore, times: int) -> None:
    """Wait for others to end, which they do in bounded time; even where this is interrupted, since
    they use memory of the caller's."""
    interrupted: BaseException | None = None
    while times:
        try:
            bell.acquire()
            times -= 1
        except BaseException as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted
