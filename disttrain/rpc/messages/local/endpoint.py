"""Messages between the processes of one host and user: Unix sockets, and shared memory for arrays.

Two connections per pair of workers, one for each direction of requests: see ``waiters`` for who
reads answers, ``serving`` for who reads and handles requests, ``blocks`` for large parts. A peer is
lost when a connection ends, its process ends (whoever else holds its sockets), or its process is
stopped; not when it is busy.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from functools import partial

from .... import context
from ....errors import CommError, PeerFailed
from ..contract.endpoint import Block, ByPeer, OnLost, OnMessage, is_closed, no_address
from ..contract.message import Limits, Message, check_arrays
from . import handshake
from .blocks import ARENA_BYTES, Lender
from .link import Closed, Link
from .listener import Listener
from .peers import Peer
from .pool import Pool
from .process import Process
from .serving import Serving
from .waiters import PATIENCE, Thread, Waiters

CLOSE_SECONDS = 2.0
LINGER = 0.02  # seconds that a thread of the pool stays with a link whose request it has handled
_OTHER_LINK = 0.2  # seconds for one link to end after the other
_REST = select.EPOLLRDHUP
_ONCE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

_log = logging.getLogger("disttrain.messaging")


class LocalEndpoint(ByPeer):
    """See ``Endpoint``. ``address`` is ready when it is made; ``serve`` before anybody uses it."""

    def __init__(
        self,
        me: int,
        token: bytes,
        limits: Limits | None = None,
        arena_bytes: int = ARENA_BYTES,
    ) -> None:
        """``arena_bytes``: addresses for large parts of messages; what finds no room there, or
        everything where it is 0, goes through the socket."""
        super().__init__(me, token, limits)
        self._lender = Lender(arena_bytes)
        self._identity = handshake.Identity(me, token, self._lender.fd)
        self.address = handshake.new_address()
        self._peers: dict[int, Peer] = {}
        self._processes: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._thread = Thread()
        self._pid = os.getpid()
        self._closed = False
        self._pool = Pool(f"rpc-{me}", self.limits.threads, self._tick)
        self._listener = Listener(
            self.address, self._identity, self.limits, self._pool, self._admit
        )
        self._where, self._small = f"worker {me}", self.limits.small()
        self._on_message: OnMessage = _nobody
        self._on_lost: OnLost = _nobody

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._listener.open()
        self._pool.start()

    # --- connecting ------------------------------------------------------------------------------

    def _anew(self, number: int) -> Peer:
        with self._lock:
            self._peers[number] = anew = Peer(number)
        return anew

    def _peer(self, number: int) -> Peer:
        if self._closed:
            raise is_closed(self._where)
        if os.getpid() != self._pid:
            raise CommError(
                f"{self._where}: the endpoint belongs to the process that this one was forked from"
            )
        peer = self._peers.get(number)
        if peer is None:
            with self._lock:
                peer = self._peers.setdefault(number, Peer(number))
        return peer

    def _asking(self, peer: Peer) -> Link:
        """The link for requests to ``peer``, made where it is missing."""
        with peer.connecting:
            if peer.lost is not None:
                raise peer.lost.again()
            if peer.asks is not None:
                return peer.asks
            if not peer.address:
                raise no_address(self._where, peer.number)
            try:
                sock, who = handshake.call_on(
                    peer.address, self._identity, peer.number, self.limits.handshake_seconds
                )
            except handshake.Refused as error:
                raise PeerFailed(peer.number, str(error), where="connecting") from None
            link = self._link(sock, peer, who, PATIENCE)
            peer.waiters = Waiters(
                link,
                self._thread,
                deliver=lambda message: self._deliver(peer, message),
                arm=lambda: link.watch_again(self._pool.rearm, _ONCE),
                fail=lambda error: self._ended(peer, error, answers=True),
            )
            # Watched before others can send: arming what is not watched yet would be lost.
            self._pool.watch(link.fd, _REST, lambda mask: self._attend(peer, link, mask))
            peer.asks = link
        if self._closed or peer.lost is not None:  # meanwhile
            self._drop(peer)
            raise peer.lost.again() if peer.lost else is_closed(self._where)
        return link

    def _link(
        self, sock: socket.socket, peer: Peer, who: handshake.Introduction, patience: float
    ) -> Link:
        try:
            with self._lock:
                peer.met(who)
                if peer.process is None and who.pid != self._pid:
                    peer.process = self._processes.get(who.pid) or self._watch(who.pid)
        except BaseException:
            sock.close()
            raise
        link = Link(sock, self._lender, peer, peer.find, self.limits, patience, peer.link_is_over)
        if who.pid != self._pid and not self._is_crowded():
            link.looks.allowed = True
        return link

    def _is_crowded(self) -> bool:
        """Are there more workers than processors? Who looks out for one keeps another from running
        then."""
        workers = max(context.current().local_world_size, len(self._processes) + 1)
        return workers > len(os.sched_getaffinity(0))

    def _attend(self, peer: Peer, link: Link, mask: int) -> None:
        """Answers have come and nobody waits, or the peer has hung up."""
        assert peer.waiters is not None
        peer.waiters.attend()
        if mask & _ENDED and not link.closed:  # a thread that reads is about to find out
            context.sleep(0.001)
            link.watch_again(self._pool.rearm, _ONCE)

    def _admit(self, sock: socket.socket, who: handshake.Introduction) -> None:
        """A peer that has proved itself will send requests here."""
        peer = self._place_for(who)
        try:
            link = self._link(sock, peer, who, LINGER)
        except (CommError, OSError) as error:
            self._listener.complain(str(error))
            return
        peer.serving = Serving(
            link,
            self._pool,
            self._thread,
            deliver=lambda message: self._deliver(peer, message),
            arm=lambda: link.watch_again(self._pool.rearm, _ONCE),
            fail=lambda error: self._ended(peer, error, requests=True),
        )
        peer.serves = link
        try:
            link.begin(partial(self._pool.watch, link.fd, _ONCE, peer.serving.attend))
        except (OSError, ValueError):
            if not self._closed:
                raise
        if self._closed or peer.lost is not None:
            self._drop(peer)

    def _place_for(self, who: handshake.Introduction) -> Peer:
        """The ``Peer`` of one who has connected. Where it has connected before, that is lost, and
        told before anything of the new connection is heard."""
        anew = None
        while True:
            with self._lock:
                old = self._peers.get(who.number)
                if old is not None and old.lost is None:
                    if not old.serves and old.name in (b"", who.name):
                        return old
                else:
                    peer = self._peers[who.number] = Peer(who.number)
                    if old is not None and old is anew:
                        peer.address = old.address
                    return peer
            anew = old
            self._lose(old, CommError("it has connected anew"))

    # --- messages --------------------------------------------------------------------------------

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        to = self._peer(peer)
        payload, arrays = message.payload, message.arrays
        size = len(payload) if isinstance(payload, bytes) else memoryview(payload).nbytes
        if arrays or size + len(message.head) > self._small:
            array_bytes = check_arrays(arrays, self._where)
            self.limits.check(len(message.head), size, len(arrays), array_bytes, self._where)
        link = to.serves if message.answers else to.asks
        if link is None or to.lost is not None:
            if to.lost is not None:
                raise to.lost.again()
            if message.answers:
                raise no_address(self._where, peer)
            link = self._asking(to)
        try:
            link.send(message, size)
        except Closed as error:
            raise self._ended(to, error).again() from None
        if message.call and not message.answers and (not awaited or link.is_full):
            assert to.waiters is not None
            to.waiters.look_out()

    def _deliver(self, peer: Peer, message: Message) -> None:
        try:
            self._on_message(peer.number, message)
        except Exception:
            _log.exception("%s: handling %r failed", self._where, message)

    def waiting(self, peer: int, call: int = 0) -> Block:
        self._let_go()
        to = self._peer(peer)
        if to.waiters is None:
            if to.lost is not None:
                return _return_at_once
            self._asking(to)  # another thread is about to ask
            assert to.waiters is not None
        return to.waiters.waiter(call)

    def look_out(self, peer: int) -> None:
        to = self._peers.get(peer)
        if to is not None and to.waiters is not None and to.lost is None:
            to.waiters.look_out()

    def take(self, peer: int) -> None:
        to = self._peers.get(peer)
        if to is not None and to.waiters is not None and to.lost is None:
            to.waiters.attend()

    def _let_go(self) -> None:
        """This thread may be about to wait: if it keeps others from reading, it does not now."""
        let_go = self._thread.holds
        if let_go is not None:
            self._thread.holds = None
            let_go()

    # --- the end of peers ------------------------------------------------------------------------

    def _watch(self, pid: int) -> Process:
        """Notice the end of a process, whoever else holds its sockets."""
        process = Process(pid)
        if process.fd >= 0:
            self._processes[pid] = process
            if self._is_crowded():
                for link in [link for peer in self._peers.values() for link in peer.links()]:
                    link.looks.allowed = False
            self._pool.watch(process.fd, _ONCE, lambda mask: self._process_ended(process))
        return process

    def _process_ended(self, process: Process) -> None:
        if not process.is_over():  # an event of what had this descriptor's number before
            return
        self._pool.forget(process.fd)
        with self._lock:
            self._processes.pop(process.pid, None)
            process.ended = True
            process.close()
            peers = [p for p in self._peers.values() if p.process is process]
        for peer in peers:
            for link in peer.links():  # its end will be found where it is read
                link.hang_up()
                link.watch_again(self._pool.rearm, _ONCE)

    def _tick(self) -> None:
        self._listener.tick()
        for peer in list(self._peers.values()):
            if peer.waiters is not None and peer.asks is not None and peer.lost is None:
                peer.waiters.look_again()
        for process in list(self._processes.values()):
            if process.is_stopped():
                for peer in list(self._peers.values()):
                    if peer.process is process and peer.lost is None:
                        cause = f"its process {process.pid} is stopped (SIGSTOP)"
                        self._lose(peer, CommError(cause))

    def _ended(
        self, peer: Peer, error: CommError, answers: bool = False, requests: bool = False
    ) -> PeerFailed:
        """A link has ended: no more ``answers`` or ``requests`` will come. What was sent before on
        the other one comes first; its end follows."""
        peer.answers_over |= answers
        peer.requests_over |= requests
        if isinstance(error, Closed):
            self._let_go()
            if peer.waiters is not None and not peer.answers_over:
                self._pool.may_block()
                peer.waiters.attend()
            until = time.monotonic() + _OTHER_LINK
            while peer.lost is None and not peer.is_over() and time.monotonic() < until:
                context.sleep(0.0005)
        return self._lose(peer, error)

    def _lose(self, peer: Peer, error: BaseException) -> PeerFailed:
        """The peer is gone: tell whoever waits for it, once."""
        cause = peer.how_it_ended(error)
        with self._lock:
            if peer.lost is not None:
                return peer.lost
            peer.lost = lost = PeerFailed(peer.number, cause)
            told = self._peers.get(peer.number) is peer and not self._closed
        self._drop(peer)
        if told:
            try:
                self._on_lost(peer.number, lost.again())
            except Exception:
                _log.exception("%s: telling that worker %d is lost", self._where, peer.number)
        if peer.waiters is not None:
            peer.waiters.wake_all()
        return lost

    def _drop(self, peer: Peer) -> None:
        for link in peer.links():
            link.give_up(self._pool.forget)

    def disconnect(self, peer: int) -> None:
        self._let_go()
        with self._lock:
            gone = self._peers.pop(peer, None)
            if gone is None:
                return
            gone.lost = gone.lost or PeerFailed(peer, "it was disconnected here")
        self._end(gone)

    def _end(self, peer: Peer) -> None:
        self._drop(peer)
        if peer.waiters is not None:
            peer.waiters.wake_all()

    def close(self) -> None:
        if os.getpid() != self._pid:
            self._abandon()
            return
        self._let_go()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            peers = list(self._peers.values())
        self._listener.close()
        for peer in peers:
            peer.lost = peer.lost or PeerFailed(peer.number, "the endpoint was closed here")
            self._end(peer)
        self._pool.close(CLOSE_SECONDS)
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._lender.close()
        self._on_message = self._on_lost = _nobody  # what they refer to need not wait for us

    def _abandon(self) -> None:
        """In a forked child: close its copies of the descriptors, and disturb nobody. Locks may be
        held for ever by threads that are not here."""
        if self._closed:
            return
        self._closed = True
        self._listener.abandon()
        for peer in self._peers.values():
            for link in peer.links():
                link.sock.close()
        for process in self._processes.values():
            process.close()
        self._pool.abandon()
        if self._identity.fd >= 0:
            os.close(self._identity.fd)


def _nobody(*args: object) -> None:
    """What an endpoint tells before it serves: nobody listens."""


def _return_at_once(seconds: float) -> None:
    """There is nothing to wait for."""
