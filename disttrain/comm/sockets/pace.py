"""How soon the packets of a link leave: at once, unless the network loses them.

Where the system paces (BBR) it sets a timer for every packet. Between machines of one room that
costs more than all copies together: 25 MB each way take 24 ms with it and 11 ms without. Which way
it is cannot be changed any more when a connection stands, so links begin without. What does not
pace takes a lost packet for a full network, and gets slow where it is only a bad one; a link that
loses packets goes back to what the system prefers (``Losses``).

A network that loses packets is slow, too: each one is sent again after twice the time of before.
How long a host may be silent until it counts as gone follows from what the connection has shown of
its way there (``patience_for``).

Knows sockets and what the kernel tells of them; no links.
"""

from __future__ import annotations

import contextlib
import socket
import struct

_PACING = (b"bbr", b"bbr2", b"bbr3")
_AT_ONCE = (b"cubic", b"reno")  # the second is part of every kernel
_NAME_BYTES = 16
# Of what TCP_INFO gives: how many segments were sent once more (at 100), how many there were in all
# (156), and how many of the other end's it turned out to have had already (216).
_INFO_BYTES = 224
_AGAIN, _SENT, _IN_VAIN = 100, 156, 216
_U32 = struct.Struct("=I")
_ENOUGH = 100  # segments that tell something
_MANY = 0.01  # of them lost
_RTT, _SPREAD = 68, 72  # of the times to and fro, in microseconds
_TRIES = 7  # times that something is sent before its host counts as gone: 64 times the first wait
_FIRST, _LEAST = 1.0, 0.2  # the first wait before anything is known of the way, and at least (s)
FIRST_PATIENCE, LEAST_PATIENCE = (wait * ((1 << (_TRIES - 1)) - 1) for wait in (_FIRST, _LEAST))


def patience_for(sock: socket.socket) -> float:
    """For how many seconds the other host of a connection may be silent: as long as it takes to
    send something so often that a fifth of all packets, lost in each direction, are no reason."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    rtt, spread = (_U32.unpack_from(info, i)[0] * 1e-6 for i in (_RTT, _SPREAD))
    return max(_LEAST, rtt + 4 * spread) * ((1 << (_TRIES - 1)) - 1)  # as RFC 6298 waits


def expect_signs(sock: socket.socket, patience: float) -> None:
    """Let the kernel end the connection when the other host has shown for so many seconds no sign
    that it is there, which it is asked for every second; 0: never."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(patience > 0))
    if patience:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * patience))


def rule_of(sock: socket.socket) -> bytes:
    """By which rule it sends; nothing where it is none of TCP's."""
    try:
        name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    except OSError:
        return b""
    return name.rstrip(b"\0")


def send_at_once(sock: socket.socket) -> None:
    """Let what ``sock`` sends leave without a timer, and what comes of it where it is to listen.
    To be called before either."""
    if rule_of(sock) in _PACING:
        for name in _AT_ONCE:
            with contextlib.suppress(OSError):  # not every program may choose any
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
                return


def is_lossy(sent: int, lost: int) -> bool:
    """Whether a network that has lost so many of so many segments is a bad one."""
    return sent >= _ENOUGH and lost > _MANY * sent


class Losses:
    """Looks after a connected socket. ``own``: the system's rule, where the socket uses another."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._before = (0, 0)
        with socket.socket(sock.family, socket.SOCK_STREAM) as fresh:
            own = rule_of(fresh)
        self.own = b"" if own == rule_of(sock) else own

    def look(self) -> None:
        """Go back to the system's rule where segments were lost. To be called now and then."""
        if not self.own:
            return
        with contextlib.suppress(OSError):  # it is closed
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            if len(info) < _INFO_BYTES:
                return
            again, sent, in_vain = (_U32.unpack_from(info, i)[0] for i in (_AGAIN, _SENT, _IN_VAIN))
            lost = max(0, again - in_vain)
            before = self._before
            if sent - before[0] < _ENOUGH:
                return
            self._before = sent, lost
            if is_lossy(sent - before[0], lost - before[1]):
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.own)
                self.own = b""
