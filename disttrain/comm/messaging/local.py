"""Messages between the processes of one host and user: Unix sockets.

Two connections per pair of workers, one for each direction of requests. See ``waiters`` for who
reads answers; requests are read by the pool, and each is handled by the thread that read it.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from typing import Any

from ... import context
from ...errors import CommError, PeerFailed
from . import greeting
from .endpoint import Block, Endpoint, OnLost, OnMessage, is_closed, no_address
from .frames import Garbage
from .link import Closed, Link, streams
from .message import Limits, Message, check_arrays
from .pool import Pool
from .waiters import Thread, Waiters

CLOSE_SECONDS = 2.0
_COMPLAIN_EVERY = 60.0
_REST = select.EPOLLRDHUP
_ONCE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT

_log = logging.getLogger("disttrain.messaging")


class _Peer:
    """What is known of one peer."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = ""
        self.asks: Link | None = None  # our requests, its answers
        self.answers: Waiters | None = None
        self.serves: Link | None = None  # its requests, our answers
        self.name = b""
        self.lost: PeerFailed | None = None
        self.connecting = threading.Lock()

    def links(self) -> list[Link]:
        return [link for link in (self.asks, self.serves) if link is not None]


class LocalEndpoint(Endpoint):
    """See ``Endpoint``. ``address`` is ready when it is made; ``serve`` before anybody uses it."""

    def __init__(self, me: int, token: bytes, limits: Limits | None = None) -> None:
        super().__init__(me, token, limits)
        self._identity = greeting.Identity(me, token)
        self.address = greeting.new_address()
        self._listener = greeting.listen(self.address)
        self._peers: dict[int, _Peer] = {}
        self._strangers: dict[int, greeting.Stranger] = {}
        self._lock = threading.Lock()
        self._thread = Thread()
        self._pid = os.getpid()
        self._closed = False
        self._complained = -_COMPLAIN_EVERY
        self._pool = Pool(f"rpc-{me}", self.limits.threads, self._tick)
        self._where = f"worker {me}"
        self._on_message: OnMessage = _nobody
        self._on_lost: OnLost = _nobody

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._pool.watch(self._listener.fileno(), select.EPOLLIN, self._accept)
        self._pool.start()

    # --- connecting ------------------------------------------------------------------------------

    def introduce(self, peer: int, address: str) -> None:
        known = self._peer(peer)
        if known.lost is not None and known.address != address:
            with self._lock:
                known = self._peers[peer] = _Peer(peer)
        if known.address and known.address != address:
            raise CommError(
                f"{self._where}: worker {peer} is at {known.address}, {address} was given; "
                "disconnect it first"
            )
        known.address = address

    def connect(self, peer: int, address: str) -> None:
        self.introduce(peer, address)
        self._asking(self._peers[peer])

    def _peer(self, number: int) -> _Peer:
        if self._closed:
            raise is_closed(self._where)
        peer = self._peers.get(number)
        if peer is None:
            with self._lock:
                peer = self._peers.setdefault(number, _Peer(number))
        return peer

    def _asking(self, peer: _Peer) -> Link:
        """The link for requests to ``peer``, made where it is missing."""
        with peer.connecting:
            if peer.lost is not None:
                raise peer.lost
            if peer.asks is not None:
                return peer.asks
            if not peer.address:
                raise no_address(self._where, peer.number)
            try:
                sock, name = greeting.call_on(
                    peer.address, self._identity, peer.number, self.limits.handshake_seconds
                )
            except greeting.Refused as error:
                raise PeerFailed(peer.number, str(error), where="connecting") from None
            link = Link(sock, _nothing_shared, self.limits)
            peer.answers = Waiters(
                link,
                self._thread,
                deliver=lambda message: self._deliver(peer, message),
                arm=lambda: self._pool.rearm(link.fd, _ONCE),
                fail=lambda error: self._lose(peer, error),
            )
            peer.name = name
            peer.asks = link
            self._pool.watch(link.fd, _REST, lambda mask: self._attend(peer, link, mask))
        if self._closed:  # meanwhile
            self._drop(peer)
            raise is_closed(self._where)
        return link

    def _attend(self, peer: _Peer, link: Link, mask: int) -> None:
        """Answers have come and nobody waits, or the peer has hung up."""
        assert peer.answers is not None
        peer.answers.attend()
        if mask & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR) and not link.closed:
            self._pool.rearm(link.fd, _ONCE)  # a thread that waits may be about to find out

    # --- strangers -------------------------------------------------------------------------------

    def _accept(self, mask: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left: try again, not too often
            context.sleep(0.001)
            return
        sock.setblocking(False)
        if greeting.peer_uid(sock) != os.getuid():
            sock.close()
            self._complain("is of another user")
            return
        stranger = greeting.Stranger(sock, self.limits.handshake_seconds)
        with self._lock:
            full = len(self._strangers) >= self.limits.strangers
            oldest = next(iter(self._strangers.values())) if full else None
            self._strangers[stranger.fd] = stranger
        if oldest is not None:
            self._refuse(oldest, "was the oldest of too many")
        self._pool.watch(stranger.fd, _ONCE, lambda mask: self._greet(stranger))

    def _greet(self, stranger: greeting.Stranger) -> None:
        try:
            who = stranger.go_on(self._identity)
        except greeting.Refused as error:
            self._refuse(stranger, str(error))
            return
        if who is None:
            self._pool.rearm(stranger.fd, _ONCE)
            return
        with self._lock:
            if self._strangers.pop(stranger.fd, None) is None:
                return  # refused meanwhile
        self._pool.forget(stranger.fd)
        self._admit(stranger.sock, who)

    def _admit(self, sock: socket.socket, who: greeting.Introduction) -> None:
        """A peer that has proved itself will send requests here."""
        link = Link(sock, _nothing_shared, self.limits)
        with self._lock:
            peer = self._peers.setdefault(who.number, _Peer(who.number))
            old = peer if peer.lost is not None or peer.serves is not None else None
            if old is not None:  # it has begun anew
                peer = self._peers[who.number] = _Peer(who.number)
                peer.address = ""
            peer.serves, peer.name = link, who.name
        if old is not None:
            self._lose(old, CommError("it has connected anew"))
        self._pool.watch(link.fd, _ONCE, lambda mask: self._take(peer, link))

    def _refuse(self, stranger: greeting.Stranger, why: str) -> None:
        with self._lock:
            if self._strangers.pop(stranger.fd, None) is None:
                return
        self._pool.forget(stranger.fd)
        stranger.sock.close()
        self._complain(why)

    def _complain(self, why: str) -> None:
        """Log a refusal, at most once a minute."""
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            _log.warning("%s: refused a connection: it %s", self._where, why)

    def _tick(self) -> None:
        now = time.monotonic()
        for stranger in list(self._strangers.values()):
            if stranger.deadline <= now:
                self._refuse(stranger, "did not finish the handshake in time")

    # --- messages --------------------------------------------------------------------------------

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        to = self._peer(peer)
        size = memoryview(message.payload).nbytes
        array_bytes = check_arrays(message.arrays, self._where) if message.arrays else 0
        self.limits.check(len(message.head), size, len(message.arrays), array_bytes, self._where)
        link = to.serves if message.answers else to.asks
        if link is None or to.lost is not None:
            if to.lost is not None:
                raise to.lost
            if message.answers:
                raise no_address(self._where, peer)
            link = self._asking(to)
        try:
            link.send(message, streams)
        except Closed as error:
            raise self._lose(to, error) from None
        if not awaited and not message.answers and message.call:
            assert to.answers is not None
            to.answers.look_out()

    def _take(self, peer: _Peer, link: Link) -> None:
        """A request has come (or the end): read it, let others read the next, and handle it."""
        if not link.reading.acquire(False):
            return
        message, error = None, None
        try:
            while message is None:
                message = link.read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except CommError as trouble:
            error = trouble
        finally:
            link.stop_reading()
        if error is not None:
            self._lose(peer, error)
            return
        self._pool.rearm(link.fd, _ONCE)
        if message is not None:
            self._pool.may_block()
            self._deliver(peer, message)

    def _deliver(self, peer: _Peer, message: Message) -> None:
        try:
            self._on_message(peer.number, message)
        except Exception:
            _log.exception("%s: handling %r failed", self._where, message)

    def waiting(self, peer: int, call: int = 0) -> Block:
        self._let_go()
        to = self._peer(peer)
        if to.answers is None:
            if to.lost is not None:
                return _return_at_once
            raise no_address(self._where, peer)
        return to.answers.waiter(call)

    def _let_go(self) -> None:
        """This thread may be about to wait: if it reads answers, others do so from now on."""
        if self._thread.leads is not None:
            self._thread.leads.let_go()

    # --- the end ---------------------------------------------------------------------------------

    def _lose(self, peer: _Peer, error: BaseException) -> PeerFailed:
        """The peer is gone: tell whoever waits for it, once."""
        with self._lock:
            if peer.lost is not None:
                return peer.lost
            if isinstance(error, Garbage):
                cause = f"it sent what no worker sends: {error}"
            else:
                cause = str(error)
            peer.lost = lost = PeerFailed(peer.number, cause)
        told = self._peers.get(peer.number) is peer
        self._drop(peer)
        if told and not self._closed:
            try:
                self._on_lost(peer.number, lost)
            except Exception:
                _log.exception("%s: telling that worker %d is lost", self._where, peer.number)
        if peer.answers is not None:
            peer.answers.wake_all()
        return lost

    def _drop(self, peer: _Peer) -> None:
        for link in peer.links():
            self._pool.forget(link.fd)
            link.shut()
            link.close()

    def disconnect(self, peer: int) -> None:
        self._let_go()
        with self._lock:
            gone = self._peers.pop(peer, None)
            if gone is None:
                return
            gone.lost = gone.lost or PeerFailed(peer, "it was disconnected here")
        self._drop(gone)
        if gone.answers is not None:
            gone.answers.wake_all()

    def close(self) -> None:
        self._let_go()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            peers, strangers = list(self._peers.values()), list(self._strangers.values())
            self._strangers.clear()
        self._pool.forget(self._listener.fileno())
        self._listener.close()
        for stranger in strangers:
            self._pool.forget(stranger.fd)
            stranger.sock.close()
        for peer in peers:
            peer.lost = peer.lost or PeerFailed(peer.number, "the endpoint was closed here")
            self._drop(peer)
            if peer.answers is not None:
                peer.answers.wake_all()
        self._pool.close(CLOSE_SECONDS)


def _nobody(*args: Any) -> None:
    """What an endpoint tells before it serves: nobody listens."""


def _nothing_shared(at: int, nbytes: int) -> Any:
    raise Garbage("a part in memory that is not shared")


def _return_at_once(seconds: float) -> None:
    """There is nothing to wait for."""
