"""What the processes of a server say to each other: JSON, one message a packet, with descriptors.

Each side of a channel is one of ours, forked from one process; nothing that a client sends reaches
one as it came.
"""

from __future__ import annotations

import array
import json
import socket
from typing import Any

_MOST_FDS = 16
_ROOM = 1 << 20


class Channel:
    """One end. ``receive`` gives None once the other end is closed."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: dict[str, Any], fds: list[int] | tuple[int, ...] = ()) -> bool:
        """Whether the other end is there to hear it."""
        data = json.dumps(message, separators=(",", ":")).encode()
        try:
            if fds:
                rights = array.array("i", fds)
                self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            else:
                self.sock.send(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """The next message; one without descriptors."""
        try:
            data = self.sock.recv(_ROOM)
        except ConnectionResetError:
            return None
        return json.loads(data) if data else None

    def receive_with_fds(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message, and the descriptors that came with it, which are the caller's now."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, _ROOM, _MOST_FDS)
        except ConnectionResetError:
            return None, []
        return (json.loads(data) if data else None), fds

    def close(self) -> None:
        """The other end hears that, too."""
        self.sock.close()


def pair() -> tuple[Channel, Channel]:
    """Two ends."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(one), Channel(other)
