"""What ranks, terminals and the launcher say to each other of the debugger: JSON, and descriptors.

The launcher listens at a name that has no file (see unix(7)), and both sides see from the kernel
who the other one is: only the same user is heard. A message is a datagram, so none comes in parts.
Knows no ranks.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

from ..errors import CommError

MOST_BYTES = 32 << 10
_MOST_FDS = 4
_PEER = struct.Struct("3i")

Message = dict[str, Any]


class Wire:
    """One end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self.open = True  # until the other side has gone

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, kind: str, fds: Sequence[int] = (), **content: Any) -> bool:
        """Say something; False where nobody is there any more, or does not read."""
        data = json.dumps({"kind": kind, **content}, ensure_ascii=False).encode(errors="replace")
        try:
            socket.send_fds(self.sock, [data[:MOST_BYTES]], fds, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def receive(self) -> list[tuple[Message, list[int]]]:
        """All that has come: each message, and the descriptors that came with it, which are the
        caller's. What is no message ends the wire."""
        found = []
        while self.open:
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, MOST_BYTES, _MOST_FDS)
            except BlockingIOError:
                break
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.set_inheritable(fd, False)
            message = _decoded(data)
            if message is None:
                self.open = False
                for fd in fds:
                    os.close(fd)
                break
            found.append((message, fds))
        return found

    def wait(self, seconds: float | None) -> bool:
        """Has something come, or the other side gone, within so many seconds?"""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))

    def close(self) -> None:
        self.open = False
        self.sock.close()


def _decoded(data: bytes) -> Message | None:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def fresh_name() -> str:
    """A name to listen at that nobody guesses."""
    return f"disttrain-debugger-{os.getuid()}-{os.urandom(12).hex()}"


def listen(name: str) -> socket.socket:
    """Listen there. Raises ``OSError``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind("\0" + name)
        sock.listen(64)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def accept(listener: socket.socket) -> Wire | None:
    """Who has come; None where there is nobody, or another user."""
    try:
        sock, _ = listener.accept()
    except OSError:
        return None
    if peer(sock)[1] != os.getuid():
        sock.close()
        return None
    return Wire(sock)


def connect(name: str) -> Wire:
    """Call the launcher that listens at ``name``. Raises ``CommError``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect("\0" + name)
        if peer(sock)[1] != os.getuid():
            raise CommError("the debugger's launcher is another user's; nothing is said to it")
    except OSError as error:
        sock.close()
        raise CommError(f"the job's launcher cannot be called: {error.strerror}") from None
    except BaseException:
        sock.close()
        raise
    return Wire(sock)


def peer(sock: socket.socket) -> tuple[int, int]:
    """(process, user) at the other end, as the kernel says."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(data)
    return pid, uid
