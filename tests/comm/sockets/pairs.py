"""Two ends of a link, and strangers at a listener."""

from __future__ import annotations

import socket
from queue import SimpleQueue

from disttrain.comm.sockets.handshake import Identity
from disttrain.comm.sockets.listener import Listener, call_on

TOKEN, OTHER = b"t" * 32, b"o" * 32


def identity(number, tls, token=TOKEN, purpose="tests"):
    return Identity(number, token, purpose, tls=tls)


class Host:
    """Number 0, with a listener. ``links``: those that were let in; ``asked``: who was admitted."""

    def __init__(self, tls, admit=lambda number, said: b"welcome", **limits):
        self.me, self.links, self.asked = identity(0, tls), SimpleQueue(), []

        def asked(number, said):
            self.asked.append((number, said))
            return admit(number, said)

        self.listener = Listener(self.me, "127.0.0.1", asked, self.links.put, **limits)

    def call(self, tls, number=1, peer=0, said=b"", seconds=2.0, **who):
        """Connect to the listener."""
        me = identity(number, tls, **who)
        return call_on(me, peer, self.listener.host, self.listener.port, said, seconds)

    def pair(self, tls, **how):
        """Both ends of a new link: the one that connected, and ours."""
        there = self.call(tls, **how)[0]
        return there, self.links.get(timeout=10)

    def socket(self):
        sock = socket.create_connection((self.listener.host, self.listener.port))
        sock.settimeout(30)
        return sock

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.close()
        while not self.links.empty():
            self.links.get().close()
