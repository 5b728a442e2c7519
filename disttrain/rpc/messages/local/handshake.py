"""How two workers of one host come together: addresses, listeners, and the handshake.

A listener has a random name in the abstract namespace, so no file is left behind, whatever ends its
process. Who connects must be of the same user (the kernel says so) and prove the token, within two
seconds, and gets proof in return (``store.hello``); only then does either side read who the other
one is. Packets keep their bounds, and nothing longer than what is due is read:

    client: hello 64        server: hello 64
    client: proof 32, then introduction 32    server: introduction 32

    introduction: its number u32 | the number it believes to talk to u32 | 24 bytes that name the
                  endpoint, and the descriptor of its shared memory

Descriptors that strangers send are never received. Knows sockets and bytes; no messages.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from array import array
from dataclasses import dataclass

from .... import context
from ....comm.store import hello
from ....comm.store.server import peer_uid
from ....errors import CommError

UID_BYTES = 24
MAX_NUMBER = 0xFFFF
_INTRO = struct.Struct(f"<II{UID_BYTES}s")
_SCHEME = "local:"
_AGAIN = 0.01  # seconds after which one who was pushed out tries again


class Refused(CommError):
    """The other side is not who it should be, or does not answer."""


@dataclass(frozen=True)
class Introduction:
    """Who a peer says that it is, after it has proved the token."""

    number: int
    wanted: int
    name: bytes
    pid: int  # as the kernel says; 0 where it cannot
    fd: int  # its shared memory, now the receiver's descriptor; -1 where it has none


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
    """What an endpoint says about itself, and the key under which it proves it. ``fd``: its shared
    memory, or -1."""

    def __init__(self, number: int, token: bytes, fd: int) -> None:
        self.number, self.key, self.fd = number, hello.derive_key(token, "rpc"), fd
        self.job = hello.job_hash("")
        self.name = secrets.token_bytes(UID_BYTES)

    def introduce(self, sock: socket.socket, to: int, flags: int = 0) -> None:
        """Say who we are, to who has proved the token."""
        fds = [] if self.fd < 0 else [self.fd]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        sock.sendmsg([_INTRO.pack(self.number, to, self.name)], rights, flags)


def _read_introduction(sock: socket.socket, flags: int = 0) -> Introduction | None:
    """Who the other side says that it is; None where it says something else."""
    data, rights, told, _ = sock.recvmsg(
        _INTRO.size + 1, socket.CMSG_SPACE(4), flags | socket.MSG_CMSG_CLOEXEC
    )
    fds = array("i")
    for level, kind, raw in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(raw[: len(raw) // fds.itemsize * fds.itemsize])
    if len(data) != _INTRO.size or len(fds) > 1 or told & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        return None
    number, wanted, name = _INTRO.unpack(data)
    return Introduction(number, wanted, name, peer_pid(sock), fds[0] if fds else -1)


def call_on(
    address: str, me: Identity, peer: int, seconds: float
) -> tuple[socket.socket, Introduction]:
    """Connect to ``peer`` at ``address``, again where a crowd of strangers there has pushed us out.
    Raises ``Refused``."""
    if not can_reach(address):
        raise Refused(f"its address {address!r} is not of this host, network and user")
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _try_to_call(address, me, peer, max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            raise Refused(f"it did not finish the handshake within {seconds:g} s") from None
        except ConnectionRefusedError:
            raise Refused("nobody listens at its address any more") from None
        except OSError as error:
            if time.monotonic() > deadline:
                raise Refused(f"it cannot be reached ({error.strerror or error})") from None
        context.sleep(_AGAIN)


def _try_to_call(
    address: str, me: Identity, peer: int, seconds: float
) -> tuple[socket.socket, Introduction]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(seconds)
        sock.connect(_name(address))
        return sock, _greet(sock, me, peer)
    except BaseException:
        sock.close()
        raise


def _greet(sock: socket.socket, me: Identity, peer: int) -> Introduction:
    """The caller's side of the handshake."""
    if peer_uid(sock) != os.getuid():
        raise Refused("another user listens at its address")
    mine = hello.client_hello(me.job, 0, hello.ROLE_RPC)
    sock.send(mine)
    answer = _exactly(sock, hello.SIZE)
    proof = hello.client_proof(me.key, mine, answer)
    if proof is None:
        raise Refused("who listens at its address does not know the token")
    sock.send(proof)
    me.introduce(sock, peer)
    who = _read_introduction(sock)
    if who is None:
        raise ConnectionResetError("it closed the connection")
    if who.number != peer or who.wanted != me.number:
        if who.fd >= 0:
            os.close(who.fd)
        raise Refused(f"worker {who.number} is at its address")
    return who


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size + 1)
    if not data:
        raise ConnectionResetError("it closed the connection")
    if len(data) != size:
        raise Refused("who listens at its address does not speak this protocol")
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
            try:
                if self._known:
                    return self._introduced(me)
                want = hello.PROOF_BYTES if self._answer else hello.SIZE
                data = self.sock.recv(want + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise Refused(f"broke the connection ({error.strerror})") from None
            if len(data) != want:
                raise Refused("does not speak this protocol" if data else "went away")
            if not self._answer:
                self._greet(me, data)
            elif hello.proof_holds(me.key, self._greeting, self._answer, data):
                self._known = True
            else:
                raise Refused("does not know the token")

    def _greet(self, me: Identity, data: bytes) -> None:
        problem = hello.objection(data, me.job, 0, hello.ROLE_RPC)
        if problem:
            raise Refused(problem)
        self._greeting, self._answer = data, hello.server_hello(me.key, data)
        self.sock.send(self._answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _introduced(self, me: Identity) -> Introduction:
        who = _read_introduction(self.sock, socket.MSG_DONTWAIT)
        if who is None:
            raise Refused("does not say who it is")
        try:
            me.introduce(self.sock, who.number, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if who.wanted != me.number or who.number > MAX_NUMBER:
                raise Refused(f"says that it is worker {who.number} and wants {who.wanted}")
        except BaseException:
            if who.fd >= 0:
                os.close(who.fd)
            raise
        return who
