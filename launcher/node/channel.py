"""What the agent and its keeper say to each other: small JSON messages over a pair of sockets.

A message is a datagram, so none comes in parts. Neither side ever waits for the other one.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from disttrain.errors import LaunchError

_MOST_BYTES = 128 << 10
_TEXT = 20_000  # characters of a traceback that travel

Message = dict[str, Any]


class Unread(LaunchError):
    """The other side has not read for so long that nothing more can be said to it just now."""


class Channel:
    """One end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)
        self.open = True  # until the other side has gone

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, kind: str, **content: Any) -> None:
        """Say something; nothing happens where nobody is there any more. Raises ``Unread``."""
        data = json.dumps({"kind": kind, **content}, ensure_ascii=False).encode(errors="replace")
        if len(data) > _MOST_BYTES:
            raise LaunchError(f"a message of {len(data)} bytes between agent and keeper ({kind})")
        try:
            self._sock.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            raise Unread("the other one of agent and keeper does not read") from None
        except OSError:
            return  # its end shows once all that it has said was read

    def receive(self) -> list[Message]:
        """All that has come."""
        found = []
        while self.open:
            try:
                data = self._sock.recv(_MOST_BYTES)
            except BlockingIOError:
                break
            except ConnectionResetError:  # it has ended without reading all; its words come now
                continue
            except OSError:
                data = b""
            if not data:
                self.open = False
                break
            found.append(json.loads(data))
        return found

    def close(self) -> None:
        self._sock.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def shortened(text: str) -> str:
    """A text that fits into a message: its end says most."""
    return text if len(text) <= _TEXT else "...\n" + text[-_TEXT:]
