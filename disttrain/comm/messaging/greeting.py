"""How two workers of one host come together: addresses, listeners, and the handshake.

A listener has a random name in the abstract namespace, so no file is left behind, whatever ends its
process. Who connects must be of the same user (the kernel says so) and prove the token, within two
seconds, and gets proof in return (``store.hello``); only then does either side read who the other
one is. Packets keep their bounds, and nothing longer than what is due is read:

    client: hello 64        server: hello 64
    client: proof 32, then introduction 32    server: introduction 32

    introduction: its number u32 | the number it believes to talk to u32 | 24 bytes that name the
                  endpoint

Knows sockets and bytes; no messages.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from dataclasses import dataclass

from ...errors import CommError
from ..store import hello
from ..store.server import peer_uid

UID_BYTES = 24
_INTRO = struct.Struct(f"<II{UID_BYTES}s")
_SCHEME = "local:"


class Refused(CommError):
    """The other side is not who it should be, or does not answer."""


@dataclass(frozen=True)
class Introduction:
    """Who a peer says that it is, after it has proved the token."""

    number: int
    wanted: int
    name: bytes
    pid: int  # as the kernel says; 0 where it cannot


def host_of_names() -> str:
    """Names the place where abstract names mean the same: a boot of a kernel, and a network
    namespace of it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip().replace("-", "")
    return f"{boot[:16]}-{os.stat('/proc/self/ns/net').st_ino}"


def new_address() -> str:
    """An address that nobody else has."""
    return f"{_SCHEME}{host_of_names()}:{os.getuid()}:{secrets.token_hex(12)}"


def can_reach(address: str) -> bool:
    """Is ``address`` one of a listener on this host, in this network namespace, of this user?"""
    return address.startswith(f"{_SCHEME}{host_of_names()}:{os.getuid()}:")


def _name(address: str) -> str:
    return "\0disttrain-rpc-" + address.rpartition(":")[2]


def listen(address: str) -> socket.socket:
    """A listening socket at ``address``, which does not block."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(_name(address))
        listener.listen(1024)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def peer_pid(sock: socket.socket) -> int:
    """The process at the other end of a Unix socket; 0 where this one cannot see it."""
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


class Identity:
    """What an endpoint says about itself, and the key under which it proves it."""

    def __init__(self, number: int, token: bytes) -> None:
        self.number, self.key = number, hello.derive_key(token, "rpc")
        self.job = hello.job_hash("")
        self.name = secrets.token_bytes(UID_BYTES)

    def introduction(self, to: int) -> bytes:
        return _INTRO.pack(self.number, to, self.name)


def call_on(address: str, me: Identity, peer: int, seconds: float) -> tuple[socket.socket, bytes]:
    """Connect to ``peer`` at ``address``: (socket, name of its endpoint). Raises ``Refused``."""
    if not can_reach(address):
        raise Refused(f"its address {address!r} is not of this host, network and user")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(seconds)
        sock.connect(_name(address))
        if peer_uid(sock) != os.getuid():
            raise Refused("another user listens at its address")
        mine = hello.client_hello(me.job, 0, hello.ROLE_RPC)
        sock.send(mine)
        answer = _exactly(sock, hello.SIZE)
        proof = hello.client_proof(me.key, mine, answer)
        if proof is None:
            raise Refused("who listens at its address does not know the token")
        sock.send(proof)
        sock.send(me.introduction(peer))
        number, wanted, name = _INTRO.unpack(_exactly(sock, _INTRO.size))
        if number != peer or wanted != me.number:
            raise Refused(f"worker {number} is at its address")
        return sock, name
    except TimeoutError:
        sock.close()
        raise Refused(f"it did not finish the handshake within {seconds:g} s") from None
    except OSError as error:
        sock.close()
        raise Refused(f"it cannot be reached ({error.strerror or error})") from None
    except BaseException:
        sock.close()
        raise


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size + 1)
    if len(data) != size:
        raise Refused("it refused the connection: it does not know the token, or has no room")
    return data


class Stranger:
    """A connection that has come in and proved nothing yet."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.sock, self.fd = sock, sock.fileno()
        self.deadline = time.monotonic() + seconds
        self._greeting = self._answer = b""
        self._known = False

    def go_on(self, me: Identity) -> Introduction | None:
        """Take what has come; who it is once that is proved. Raises ``Refused``."""
        while True:
            want = hello.SIZE
            if self._answer:
                want = _INTRO.size if self._known else hello.PROOF_BYTES
            try:
                data = self.sock.recv(want + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise Refused(f"broke the connection ({error.strerror})") from None
            if len(data) != want:
                raise Refused("does not speak this protocol" if data else "went away")
            if not self._answer:
                self._greet(me, data)
            elif not self._known:
                if not hello.proof_holds(me.key, self._greeting, self._answer, data):
                    raise Refused("does not know the token")
                self._known = True
            else:
                return self._introduced(me, data)

    def _greet(self, me: Identity, data: bytes) -> None:
        problem = hello.objection(data, me.job, 0, hello.ROLE_RPC)
        if problem:
            raise Refused(problem)
        self._greeting, self._answer = data, hello.server_hello(me.key, data)
        self._say(self._answer)

    def _introduced(self, me: Identity, data: bytes) -> Introduction:
        number, wanted, name = _INTRO.unpack(data)
        self._say(me.introduction(number))
        if wanted != me.number or number > 0xFFFF:
            raise Refused(f"says that it is worker {number} and wants worker {wanted}")
        return Introduction(number, wanted, name, peer_pid(self.sock))

    def _say(self, data: bytes) -> None:
        try:
            self.sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Refused(f"broke the connection ({error.strerror})") from None
