"""Blocks of shared memory on their way to other processes: in a pickle travels a ticket, and who
unpickles it fetches the descriptor from the process that wrote the ticket.

A lender is a thread on a socket without a name in the file system. It serves processes of the same
user that show the ticket's secret, each ticket once. So a block must be fetched while the process
that has sent it lives; from then on both hold it.
"""

from __future__ import annotations

import hmac
import itertools
import os
import secrets
import socket
import struct
import threading
from typing import NamedTuple
from weakref import WeakValueDictionary

from .. import context
from ..errors import DisttrainError
from .memory import Block

_LENDER, _KNOWN = "memory.lender", "memory.known"
_SECRET_BYTES = 16
_HELLO = struct.Struct(f"<{_SECRET_BYTES}sQ")
_PATIENCE = 30.0  # seconds for a living process to answer


class Ticket(NamedTuple):
    """Where a block can be fetched."""

    place: str
    secret: bytes
    number: int
    size: int


class Lender:
    """Hands out descriptors of this process."""

    def __init__(self) -> None:
        self.place, self.secret = f"disttrain-{secrets.token_hex(12)}", secrets.token_bytes(16)
        self.lent: dict[int, int] = {}  # ticket -> descriptor
        self.numbers = itertools.count()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind("\0" + self.place)
        self.listener.listen(128)
        threading.Thread(target=self._serve, name="memory lender", daemon=True).start()

    def lend(self, block: Block) -> Ticket:
        """A ticket for ``block``, which is kept until it is fetched."""
        number = next(self.numbers)
        self.lent[number] = os.dup(block.fd)
        return Ticket(self.place, self.secret, number, block.size)

    def _serve(self) -> None:
        while True:
            peer, _ = self.listener.accept()
            with peer:
                try:
                    self._answer(peer)
                except OSError:  # it is gone or does not speak
                    continue

    def _answer(self, peer: socket.socket) -> None:
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        peer.settimeout(_PATIENCE)
        hello = peer.recv(_HELLO.size, socket.MSG_WAITALL)
        if uid != os.getuid() or len(hello) != _HELLO.size:
            return
        secret, number = _HELLO.unpack(hello)
        if not hmac.compare_digest(secret, self.secret) or number not in self.lent:
            return
        fd = self.lent.pop(number)
        try:
            socket.send_fds(peer, [b"1"], [fd])
        finally:
            os.close(fd)

    def forget(self) -> None:
        """In a forked child: nobody serves here, so nothing may look as if."""
        self.listener.close()
        for fd in self.lent.values():
            os.close(fd)


def lend(block: Block) -> tuple:
    """How a block is pickled for another process."""
    _known()[_identity(block.fd)] = block
    return fetch, (*context.current().slot(_LENDER, Lender).lend(block),)


def fetch(place: str, secret: bytes, number: int, size: int) -> Block:
    """The block of a ticket. One that this process has already is the same object again."""
    fd = _receive(Ticket(place, secret, number, size))
    known, which = _known(), _identity(fd)
    block = known.get(which)
    if block is not None:
        os.close(fd)
        return block
    block = known[which] = Block(fd, size)
    return block


def _known() -> WeakValueDictionary:
    """The blocks of this process that have travelled."""
    return context.current().slot(_KNOWN, WeakValueDictionary)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _receive(ticket: Ticket) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_PATIENCE)
        try:
            link.connect("\0" + ticket.place)
            link.sendall(_HELLO.pack(ticket.secret, ticket.number))
            said, fds, _, _ = socket.recv_fds(link, 1, 1)
        except OSError as error:
            raise DisttrainError(
                f"shared tensor: the process that has sent it cannot be reached ({error}); it must "
                "live until the tensor is received. Keep it, for example by an Event that it waits "
                "for, or send tensor.numpy(), which is copied"
            ) from None
    if fds:
        return fds[0]
    if said:
        raise DisttrainError(
            "shared tensor: this process has too many open files; each block of shared memory "
            "that is held is one. Raise the limit (ulimit -n), or keep tensor.clone() instead"
        )
    raise DisttrainError(
        "shared tensor: its sender does not have it any more; what is sent once can be received "
        "once. Send it again"
    )


def _after_fork_in_child() -> None:
    lender = context.current().slots.pop(_LENDER, None)
    if lender is not None:
        lender.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
