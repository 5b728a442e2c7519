"""How a worker begins streams to peers on other hosts: connect, prove the token, be welcomed.

A peer is given up when it does not answer in time. Whether it is there at all is seen by gRPC's own
threads, which need no interpreter: where they have met those of the peer, it is alive, though its
handler may take a while, and from then on pings tell its end. So a stopped worker is told from a
busy one.
"""

from __future__ import annotations

import threading
from typing import Any

from .... import context
from ....comm.sockets import certificates
from ....comm.sockets.certificates import Certificates
from ....errors import PeerFailed
from ..contract.message import Limits
from . import channels, handshake
from .lanes import Outgoing
from .peer import Distant

_OF_ITS_TIME = 0.9  # part of ``handshake_seconds`` in which a peer's gRPC must have answered
_BUSY = 30.0  # seconds for its handler, once it has


class Caller:
    """Worker ``me``, whose own ``address`` peers are told. ``sealed``: whether its links are."""

    def __init__(
        self,
        me: int,
        token: bytes,
        own: Certificates | None,
        limits: Limits,
        address: str,
        sealed: bool,
    ) -> None:
        self._me, self._key, self._own = me, handshake.key(token), own
        self._limits, self._address, self._sealed = limits, address, sealed

    def failed(self, peer: Distant, why: str) -> PeerFailed:
        return PeerFailed(peer.number, why, where=f"messages of worker {self._me}")

    def stream(self, peer: Distant, lane: int) -> Outgoing:
        """A new stream to ``peer``, which has welcomed us. Raises ``PeerFailed``."""
        if peer.channel is None:
            peer.channel = self._channel(peer)
            peer.stream = peer.channel.stream_stream(channels.STREAM)
        began, seconds = context.now(), self._limits.handshake_seconds
        try:
            return self._try(peer, lane)
        except PeerFailed:  # its own patience with us may have ended, too, while it was busy
            if context.now() - began < seconds / 2 or not channels.is_there(peer.channel, seconds):
                raise
        return self._try(peer, lane)

    def _try(self, peer: Distant, lane: int) -> Outgoing:
        outgoing = Outgoing(lane, self._limits)
        call = outgoing.call = peer.stream(outgoing)
        guard = _Guard(call, peer.channel, self._limits.handshake_seconds)
        try:
            self._greet(peer, lane, outgoing)
            return outgoing
        except (channels.grpc().RpcError, StopIteration):
            raise self.failed(peer, channels.reason(call, peer.address)) from None
        finally:
            guard.end()
            if outgoing.limits is self._limits:  # not welcomed
                call.cancel()
                outgoing.end()

    def _channel(self, peer: Distant) -> Any:
        secure, _ = channels.target(peer.address)
        if secure != (self._own is not None):
            raise self.failed(
                peer,
                f"it {'speaks' if secure else 'does not speak'} TLS and this worker "
                f"{'does not' if secure else 'does'}; tls= must be the same on all",
            )
        name = certificates.worker_name(handshake.JOB, peer.number)
        return channels.connect(peer.address, self._own, name)

    def _greet(self, peer: Distant, lane: int, outgoing: Outgoing) -> None:
        """Prove the token, let the peer prove it, say who we are."""
        first, call = handshake.begin(), outgoing.call
        outgoing.put(first)
        second = next(call)
        me = handshake.Introduction(self._me, peer.number, lane, peer.mine, self._address)
        third = handshake.introduce(self._key, first, second, me)
        if third is None:
            raise self.failed(peer, "it does not know the workers' token")
        outgoing.put(third)
        fourth = next(call)
        told = handshake.welcomed(self._key, first, second, fourth, self._limits)
        if told is None:
            raise self.failed(peer, "it does not speak this protocol")
        if told.sealed != self._sealed:
            raise self.failed(peer, "data_tls= is not the same there; it must be on all")
        peer.life, outgoing.limits = told.life, told.limits
        peer.wires.lead_to(channels.host_of(peer.address), told.port, peer.mine)


class _Guard:
    """Cancels a call that takes too long."""

    def __init__(self, call: Any, channel: Any, seconds: float) -> None:
        self._call, self._channel, self._seconds = call, channel, seconds
        self._lock, self._over = threading.Lock(), False
        self._timer: Any = self._start(seconds * _OF_ITS_TIME, self._look)

    def _start(self, seconds: float, body: Any) -> threading.Timer:
        timer = threading.Timer(seconds, body)
        timer.daemon = True
        timer.start()
        return timer

    def _look(self) -> None:
        """Most of the time is over: is anybody there?"""
        there = channels.is_there(self._channel, self._seconds)
        with self._lock:
            if self._over:
                return
            if there:
                self._timer = self._start(_BUSY, self._call.cancel)
                return
        self._call.cancel()

    def end(self) -> None:
        with self._lock:
            self._over = True
            self._timer.cancel()
            self._timer = None  # which leads back here, and this to gRPC's objects
