"""Messages between hosts: gRPC streams, with TLS on both sides unless told otherwise.

Every worker has one server and, for each peer that it sends to, one channel. A channel carries one
stream for requests, which come in their order, and others for answers (small ones do not wait
behind large ones). All data flows from client to server, so that two workers who call each other
have two connections. A stream begins with a proof (``handshake``), within TLS whose certificates
prove the same secret (``certificates``); frames that come before its end are not read.

gRPC itself watches the connections: a peer that does not answer a ping is lost (``channels``).
grpcio is loaded when an endpoint is made.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .... import context
from ....comm.sockets import certificates
from ....comm.sockets.handshake import Identity
from ....comm.sockets.link import Closed, Link
from ....comm.sockets.pace import LEAST_PATIENCE
from ....errors import CommError, DisttrainError
from ..contract.endpoint import Block, Endpoint, OnLost, OnMessage, is_closed, no_address
from ..contract.message import Limits, Message
from . import channels, handshake, small_answers
from .buffers import ReceiveBuffers
from .connecting import Caller
from .frames import Frames
from .lanes import Incoming, Outgoing, StreamEnded
from .large_parts import LargeParts, Wires
from .peer import Distant
from .small_answers import IncomingAnswers
from .threads import Threads

_COMPLAIN_EVERY = 60.0
_PARTING = 5.0  # seconds for what has been sent to get through when a peer is left
_ENDED = "its connection ended"
_AFTERWARDS = 1.0  # seconds in which the other streams of a lost peer end by themselves

_log = logging.getLogger("disttrain.messaging")


class RemoteEndpoint(Endpoint):
    """An endpoint that peers on other hosts reach. ``host``: the one address that it listens on.

    ``tls=False`` leaves out encryption: peers still prove the token, but whoever can read or change
    the packets on their way can read and change what is sent. ``data_tls=False`` leaves it out for
    large arrays only (None: as ``tls``). Workers with and without it do not understand each other.
    """

    patience = LEAST_PATIENCE  # a network may be slow, or lose packets

    def __init__(
        self,
        me: int,
        token: bytes,
        limits: Limits | None = None,
        *,
        host: str = "127.0.0.1",
        tls: bool = True,
        data_tls: bool | None = None,
    ) -> None:
        super().__init__(me, token, limits)
        self._key = handshake.key(token)
        self._own = certificates.issue(token, handshake.JOB, me) if tls else None
        self._peers: dict[int, Distant] = {}
        self._buffers = ReceiveBuffers()
        self._lock = threading.Lock()
        self._strangers: dict[Any, None] = {}  # gRPC's objects of streams in their handshake
        self._complained = -_COMPLAIN_EVERY
        self._closed, self._pid = False, os.getpid()
        self._serving = threading.Event()
        self._threads = Threads(f"messages-{me}")
        self._on_message: OnMessage
        self._on_lost: OnLost
        sealed = tls if data_tls is None else data_tls
        if tls and not sealed:
            _log.warning("messages of worker %d: large tensors travel without encryption", me)
        self._large_parts = LargeParts(
            Identity(me, token, "messages", tls=sealed, job=handshake.JOB, own=self._own),
            host, self.limits, self._threads, self._wires, self._hear_answers,
        )  # fmt: skip
        try:
            self._server, self.address = channels.listen(
                host, self._own, self._hear, self._threads, self.limits
            )
        except BaseException:
            self._large_parts.close()
            raise
        self._caller = Caller(me, token, self._own, self.limits, self.address, sealed)

    # --- the contract ----------------------------------------------------------------------------

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._rank = context.current()
        self._serving.set()

    def introduce(self, peer: int, address: str) -> None:
        self._check()
        channels.target(address)
        with self._lock:
            known = self._peers.get(peer)
            if known is None or (known.error is not None and known.address != address):
                self._peers[peer] = self._new_peer(peer, address)
            elif known.error is None and known.address != address:
                raise CommError(
                    f"messages of worker {self.me}: worker {peer} is at {known.address}, {address} "
                    "was given; disconnect it first"
                )

    def connect(self, peer: int, address: str) -> None:
        self.introduce(peer, address)
        self._outgoing(self._known(peer), handshake.REQUESTS)

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        self._check()
        known = self._known(peer)
        lane = handshake.ANSWERS if message.answers else handshake.REQUESTS
        outgoing = known.lanes.get(lane) or self._outgoing(known, lane)
        if known.error is not None:
            raise known.error.again()
        frames = Frames(message, outgoing.limits, f"a message to worker {peer}")
        if message.answers and frames.only is None:
            lane = handshake.LARGE_ANSWERS
            outgoing = known.lanes.get(lane) or self._outgoing(known, lane)
        try:
            if message.answers and frames.only is not None:
                sent = self._large_parts.answer(known.wires, outgoing, frames.only)
            else:
                sent = bool(frames.beside) and self._large_parts.send(known.wires, outgoing, frames)
            if not sent:
                outgoing.send(frames, lambda: f"worker {peer}")
        except (StreamEnded, Closed):
            self._broke(known, "the connection to it ended")
            raise (known.error or self._caller.failed(known, "it was left")).again() from None

    def waiting(self, peer: int, call: int = 0) -> Block:
        return self._known(peer).bells.hang(call)

    def disconnect(self, peer: int) -> None:
        with self._lock:
            known = self._peers.pop(peer, None)
        if known is not None:
            self._leave([known])

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            known, self._peers = list(self._peers.values()), {}
        if os.getpid() != self._pid:  # what was inherited belongs to the parent
            self._large_parts.close()
            for peer in known:
                peer.wires.close()
            return
        self._leave(known)
        self._large_parts.close()
        self._serving.set()
        self._server.stop(None).wait()
        self._server = None  # its handlers lead back here: what gRPC keeps open goes now
        self._threads.close()
        self._buffers.close()

    def _check(self) -> None:
        if self._closed:
            raise is_closed(f"messages of worker {self.me}")
        if os.getpid() != self._pid:
            raise CommError(
                f"messages of worker {self.me}: this process was forked from the worker's; only "
                "the worker itself can send. Start RPC after the fork"
            )

    def _new_peer(self, number: int, address: str) -> Distant:
        def deliver(message: Message) -> None:
            self._deliver(peer, message)

        peer = Distant(number, address, deliver)
        return peer

    def _known(self, peer: int) -> Distant:
        try:
            return self._peers[peer]
        except KeyError:
            self._check()
            raise no_address(f"messages of worker {self.me}", peer) from None

    def _wires(self, number: int, life: bytes) -> Wires | None:
        """Where a new link of a peer belongs, if anywhere."""
        peer = self._peers.get(number)
        if peer is None or peer.life != life or peer.error is not None or peer.leaving:
            return None
        return peer.wires

    def _hear_answers(self, number: int, link: Link) -> None:
        """Small answers of a peer will come on ``link``."""
        peer = self._peers.get(number)
        incoming = IncomingAnswers(link, self.limits, f"an answer of worker {number}")
        if peer is None or peer.error is not None or peer.leaving:
            link.shut()
            return
        with peer.lock:
            peer.heard[incoming] = incoming
        if not self._begin_to_read(peer, incoming):  # then the peer finds its link closed
            with peer.lock:
                del peer.heard[incoming]
            link.shut()

    # --- streams to peers ------------------------------------------------------------------------

    def _outgoing(self, peer: Distant, lane: int) -> Outgoing:
        """The stream for ``lane``, opened where it is not there."""
        with peer.opening:
            if peer.error is not None:
                raise peer.error.again()
            if lane not in peer.lanes:
                outgoing = self._caller.stream(peer, lane)
                peer.lanes[lane] = outgoing
                if not outgoing.call.add_callback(lambda: self._ended(peer, outgoing)):
                    self._ended(peer, outgoing)
            return peer.lanes[lane]

    def _ended(self, peer: Distant, outgoing: Outgoing) -> None:
        """gRPC has ended a stream to a peer."""
        outgoing.end()
        call, outgoing.call = outgoing.call, None
        if not peer.leaving:
            self._broke(peer, channels.reason(call, peer.address))

    # --- streams from peers ----------------------------------------------------------------------

    def _hear(self, frames: Iterator[bytes], call: Any) -> Iterator[bytes]:
        """gRPC's handler of one stream: its handshake, then its messages."""
        self._meet(call)
        guard = threading.Timer(self.limits.handshake_seconds, call.cancel)
        guard.daemon = True
        guard.start()
        heard = None
        try:
            first = next(frames, b"")
            objection = handshake.objection(first)
            if objection:
                self._refuse(call, f"whoever asked {objection}")
            second = handshake.reply(self._key, first)
            yield second
            third = next(frames, b"")
            who = handshake.introduced(self._key, first, second, third)
            if who is None:
                self._refuse(call, "whoever asked does not know the workers' token")
            assert who is not None
            heard = self._admit(who, frames, call)
            listener = self._large_parts
            what = handshake.Welcome(heard[0].mine, self.limits, listener.port, listener.sealed)
            yield handshake.welcome(self._key, first, second, what)
        finally:
            guard.cancel()
            with self._lock:
                self._strangers.pop(call, None)
            if heard is not None and not call.is_active():
                self._read_no_more(*heard, _ENDED)
        self._read(*heard)
        heard[1].wait_over()

    def _meet(self, call: object) -> None:
        """A stranger has come; the oldest of too many goes."""
        with self._lock:
            self._strangers[call] = None
            many = len(self._strangers) > self.limits.strangers
            oldest = next(iter(self._strangers)) if many else None
            if oldest is not None:
                del self._strangers[oldest]
        if oldest is not None:
            oldest.cancel()

    def _refuse(self, call: Any, why: str) -> None:
        now = context.now()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            where = call.peer()
            _log.warning("messages of worker %d: refused %s: %s", self.me, where, why)
        call.abort(channels.grpc().StatusCode.UNAUTHENTICATED, why)

    def _admit(
        self, who: handshake.Introduction, frames: Iterator[bytes], call: Any
    ) -> tuple[Distant, Incoming]:
        """Take a stream of a peer that has proved who it is."""
        if self._own is not None:
            name = certificates.worker_name(handshake.JOB, who.worker).encode()
            if name not in call.auth_context().get("x509_subject_alternative_name", ()):
                self._refuse(call, f"its certificate is not worker {who.worker}'s")
        if who.wanted != self.me or who.lane not in handshake.LANES:
            self._refuse(call, f"this is worker {self.me}, not {who.wanted}")
        peer = self._relation(who)
        if peer is None:
            self._refuse(call, "this worker has left")
        assert peer is not None

        def fetch(links: int, parts: list[memoryview]) -> None:
            self._large_parts.receive(wires, who.lane, links, parts)

        wires, where = peer.wires, f"a message of worker {who.worker}"
        incoming = Incoming(who.lane, frames, fetch, self.limits, where, self._buffers)
        with peer.lock:
            peer.heard[incoming] = call
        return peer, incoming

    def _relation(self, who: handshake.Introduction) -> Distant | None:
        """What a new stream of a peer belongs to; None where that has ended.

        A peer that has left, or was started again, and comes back begins anew.
        """
        deadline = context.now() + _PARTING
        while context.now() < deadline:
            with self._lock:
                peer = self._peers.get(who.worker)
                if self._closed or (peer is not None and peer.leaving):
                    return None
                if peer is None or (peer.buried and peer.life != who.life):
                    peer = self._peers[who.worker] = self._new_peer(who.worker, who.address)
                if peer.life in (b"", who.life):
                    peer.life = who.life
                    return peer if peer.error is None else None
            self._broke(peer, "it has connected anew")
            _wait_for(lambda peer=peer: peer.buried, deadline)
        return None

    def _begin_to_read(self, peer: Distant, incoming: Incoming | IncomingAnswers) -> bool:
        """Have another thread read on; False where the system gives none."""
        try:
            self._threads.run(lambda: self._read(peer, incoming))
        except RuntimeError as error:
            _log.warning("messages of worker %d: no further thread (%s)", self.me, error)
            return False
        return True

    def _read(self, peer: Distant, incoming: Incoming | IncomingAnswers) -> None:
        """Read messages and see to them, until somebody else reads on."""
        self._serving.wait()
        with context.attach(self._rank):
            self._read_on(peer, incoming)

    def _read_on(self, peer: Distant, incoming: Incoming | IncomingAnswers) -> None:
        try:
            while (message := incoming.read()) is not None:
                if message.answers != (incoming.lane != handshake.REQUESTS):
                    raise CommError("a request among answers, or an answer among requests")
                with peer.lock:
                    peer.read += 1
                if message.answers and peer.bells.give(message):
                    continue
                few = message.answers or self._threads.alive < self.limits.threads
                others_read = few and self._begin_to_read(peer, incoming)
                self._deliver(peer, message)
                if others_read:
                    return
            call = peer.heard.get(incoming)
            left = call is not None and call.is_active()
            why = "it has disconnected" if left else _ENDED
        except Closed:
            why = _ENDED
        except DisttrainError as error:  # what it sends fits nothing
            _log.error("messages of worker %d: %s", self.me, error)
            why = f"it broke the protocol: {error}"
        except Exception as error:  # gRPC has ended the stream, and keeps this error
            error.__traceback__ = None  # with all that is here
            why = _ENDED
        self._read_no_more(peer, incoming, why)

    def _read_no_more(self, peer: Distant, incoming: Incoming | IncomingAnswers, why: str) -> None:
        with peer.lock:
            peer.heard.pop(incoming, None)
        incoming.over()
        if (
            incoming.lane == small_answers.LANE and why == _ENDED
        ):  # the streams end, too, and say how
            over = context.now() + _AFTERWARDS
            _wait_for(lambda: peer.error is not None or peer.leaving, over)
        if not peer.leaving:
            self._broke(peer, why)

    def _deliver(self, peer: Distant, message: Message) -> None:
        if not message.answers:  # its handler may run for long
            with peer.lock:
                peer.taken += 1
        try:
            if not self._closed:
                self._on_message(peer.number, message)
        except Exception:
            _log.exception("messages of worker %d: a message was not handled", self.me)
        if message.answers:
            with peer.lock:
                peer.taken += 1
            peer.bells.ring(message.call)

    # --- the end of a peer -----------------------------------------------------------------------

    def _broke(self, peer: Distant, why: str) -> None:
        """A stream to or from a peer has ended: it is lost."""
        with peer.lock:
            if peer.error is not None or peer.leaving:
                return
            peer.error = self._caller.failed(peer, why)
        self._threads.run(lambda: self._bury(peer))

    def _bury(self, peer: Distant) -> None:
        """Let what has come be read, end the rest, and tell."""
        self._serving.wait()
        for outgoing in list(peer.lanes.values()):
            outgoing.end()
        peer.wires.shut(incoming=False)
        self._end_streams(peer, _AFTERWARDS)
        _wait_for(lambda: peer.taken == peer.read, context.now() + _AFTERWARDS)
        if not (self._closed or peer.leaving):
            assert peer.error is not None
            try:
                self._on_lost(peer.number, peer.error.again())
            except Exception:
                _log.exception("messages of worker %d: a loss was not handled", self.me)
        peer.buried = True
        peer.bells.ring(0)

    def _leave(self, peers: list[Distant]) -> None:
        """End what leads to and from ``peers``, after what has been sent."""
        for peer in peers:
            with peer.lock:
                peer.leaving = True
            for outgoing in list(peer.lanes.values()):
                outgoing.finish()
        deadline = context.now() + _PARTING
        for peer in peers:
            for outgoing in list(peer.lanes.values()):
                _wait_for(lambda outgoing=outgoing: not outgoing.is_active, deadline)
        for peer in peers:
            self._end_streams(peer, 0.0)
            peer.bells.ring(0)

    def _end_streams(self, peer: Distant, seconds: float) -> None:
        """Wait until no stream of the peer is read any more, cancelling them after ``seconds``."""
        _wait_for(lambda: not peer.heard, context.now() + seconds)
        with peer.lock:
            calls = list(peer.heard.values())
        for call in calls:
            call.cancel()
        if calls:
            peer.wires.shut()
        _wait_for(lambda: not peer.heard, context.now() + _AFTERWARDS)
        peer.wires.close()
        with peer.opening:
            if peer.channel is not None:
                peer.channel.close()
                peer.channel = peer.stream = None


def _wait_for(ready: Callable[..., Any], deadline: float) -> None:
    """Look now and then, until the deadline: for ends, which come in their own time."""
    while not ready() and context.now() < deadline:
        context.sleep(0.001)
