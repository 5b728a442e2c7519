"""The listener of a local endpoint: lets in who proves the token, and keeps nobody else long.

At most ``limits.strangers`` connections wait for their proof (the oldest goes), each for at most
``limits.handshake_seconds``. Refusals are logged, at most one a minute. Knows sockets and the
handshake; no messages, no peers.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from .... import context
from ..contract.message import Limits
from .handshake import Identity, Introduction, Refused, Stranger, listen, peer_uid
from .pool import Pool

_COMPLAIN_EVERY = 60.0
_ONCE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT

_log = logging.getLogger("disttrain.messaging")

Admit = Callable[[socket.socket, Introduction], None]


class Listener:
    """Listens at ``address`` from the start; ``open`` begins to let in, by ``admit(sock, who)``."""

    def __init__(
        self, address: str, identity: Identity, limits: Limits, pool: Pool, admit: Admit
    ) -> None:
        self._identity, self._limits = identity, limits
        self._pool, self._admit = pool, admit
        self._listener = listen(address)
        self._lock = threading.Lock()
        self.strangers: dict[int, Stranger] = {}
        self._complained = -_COMPLAIN_EVERY

    def open(self) -> None:
        self._pool.watch(self._listener.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, mask: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left: try again, not too often
            context.sleep(0.001)
            return
        sock.setblocking(False)
        if peer_uid(sock) != os.getuid():
            sock.close()
            self.complain("is of another user")
            return
        stranger = Stranger(sock, self._limits.handshake_seconds)
        with self._lock:
            full = len(self.strangers) >= self._limits.strangers
            oldest = next(iter(self.strangers.values())) if full else None
            self.strangers[stranger.fd] = stranger
        if oldest is not None:
            self._refuse(oldest, "was the oldest of too many")
        self._pool.watch(stranger.fd, _ONCE, lambda mask: self._greet(stranger))

    def _greet(self, stranger: Stranger) -> None:
        """Go on with a handshake as far as what has come allows."""
        try:
            who = stranger.go_on(self._identity)
        except Refused as error:
            self._refuse(stranger, str(error))
            return
        if who is None:
            with self._lock:  # refused meanwhile, the number may be another's
                if self.strangers.get(stranger.fd) is stranger:
                    self._pool.rearm(stranger.fd, _ONCE)
        elif self._take(stranger):
            self._admit(stranger.sock, who)
        elif who.fd >= 0:
            os.close(who.fd)

    def _take(self, stranger: Stranger) -> bool:
        """It is no stranger any more; False where it was refused at the same time."""
        with self._lock:
            if self.strangers.get(stranger.fd) is not stranger:
                return False
            del self.strangers[stranger.fd]
        self._pool.forget(stranger.fd)
        return True

    def _refuse(self, stranger: Stranger, why: str) -> None:
        if self._take(stranger):
            stranger.sock.close()
            self.complain(why)

    def tick(self) -> None:
        """Refuse who has not proved the token in time."""
        now = time.monotonic()
        for stranger in list(self.strangers.values()):
            if stranger.deadline <= now:
                self._refuse(stranger, "did not finish the handshake in time")

    def complain(self, why: str) -> None:
        """Log a refusal."""
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            me = self._identity.number
            _log.warning("worker %d: refused a connection: it %s", me, why)

    def close(self) -> None:
        with self._lock:
            strangers = list(self.strangers.values())
            self.strangers.clear()
        self._pool.forget(self._listener.fileno())
        self._listener.close()
        for stranger in strangers:
            self._pool.forget(stranger.fd)
            stranger.sock.close()

    def abandon(self) -> None:
        """In a forked child: close its copies of the descriptors."""
        self._listener.close()
        for stranger in self.strangers.values():
            stranger.sock.close()
