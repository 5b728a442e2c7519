"""The process that holds a TCP store: one thread, one selector, nothing that blocks.

Until a connection has proved that it knows the job's token, at most 96 bytes of it are read (with
``tls``: within TLS), for at most two seconds, and at most 256 such connections are kept (the oldest
goes). After that it sends requests, each a length (u32) and ``table.encode``'s bytes; a ``GET`` of
missing keys is answered when they have been set. Whoever breaks the rules is disconnected.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable

from ... import context
from ...errors import StoreError
from ...trace import logger
from . import hello, ports
from .table import CHANGES, OK, REFUSED, Limits, Request, Table, decode, encode, too_long
from .tls import Tls, TlsSocket, is_tls

_LENGTH = struct.Struct("<I")
_CHUNK = 256 << 10
_MAX_UNSENT = 1 << 20  # a client that does not read its answers is not heard any more
_COMPLAIN_EVERY = 60.0
_NAME_SECONDS = 5.0  # for a forked process to close what it has of an earlier store
_SERVERS = "store.servers"  # of a rank: those that it hosts


_Servers = weakref.WeakSet["StoreServer"]


class _Client:
    """One connection."""

    def __init__(self, sock: socket.socket | TlsSocket, peer: str, deadline: float) -> None:
        self.sock, self.peer, self.deadline = sock, peer, deadline
        self.inbox, self.unsent = bytearray(), bytearray()
        self.greeting = b""  # its hello, once it has come
        self.answer = b""  # our hello
        self.known = False
        self.skip = 0  # bytes of a request that was refused for its size, still to come
        self.waits_for: Request | None = None  # a GET that cannot be answered yet
        self.missing = b""  # the first key that it lacks


class StoreServer:
    """Serves one table. Call ``start`` for a thread, or ``poll`` when ``fileno`` is readable."""

    def __init__(
        self,
        token: bytes,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        job_id: str = "",
        epoch: int = 0,
        limits: Limits | None = None,
        share_token_as: Callable[[int], str] | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Listen on ``host``:``port`` (0: any free port). ``share_token_as(port)`` names an
        abstract Unix socket at which processes of the same user are given the token. ``tls``: no
        connection is without it."""
        self._tls = tls
        self.limits = Limits() if limits is None else limits
        self._key, self._token = hello.derive_key(token, "store"), token
        self._job, self._epoch = hello.job_hash(job_id), epoch
        self._table = Table(self.limits)
        self._expiry: float | None = None  # when leases are to be looked at again
        self._clients: dict[int, _Client] = {}
        self._strangers: dict[int, _Client] = {}
        self._complaints: dict[str, float] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = ports.listen(host, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._giver: socket.socket | None = None
        if share_token_as is not None:
            self._giver = _listen_locally(share_token_as(self.port))
            self._selector.register(self._giver, selectors.EVENT_READ, self._give_token)
        self._stop_reader, self._stop_writer = os.pipe()
        self._selector.register(self._stop_reader, selectors.EVENT_READ, lambda: None)
        self._thread: threading.Thread | None = None
        self._stopping, self._owner = False, os.getpid()
        context.current().slot(_SERVERS, _Servers).add(self)

    def start(self) -> None:
        """Serve in a thread of this process."""
        self._thread = threading.Thread(target=self._serve, name="store-server", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when ``poll`` has something to do (apart from ending handshakes that drag)."""
        return self._selector.fileno()

    def poll(self, timeout: float | None = 0.0) -> None:
        """Handle what has come, waiting at most ``timeout`` seconds for it."""
        ends = [c.deadline for c in list(self._strangers.values())[:1]]
        ends += [] if self._expiry is None else [self._expiry]
        if ends:
            left = min(ends) - time.monotonic()
            timeout = max(0.0, left if timeout is None else min(left, timeout))
        for key, events in self._selector.select(timeout):
            client = key.data
            if not isinstance(client, _Client):
                client()
            elif key.fd in self._clients:
                self._handle(client, events)
        now = time.monotonic()
        self._expiry = self._table.expire(now)
        for client in [c for c in self._strangers.values() if c.deadline <= now]:
            self._refuse(client, "did not finish the handshake in time")

    def reset(self, epoch: int) -> None:
        """Forget everything and everybody, and serve ``epoch`` from now on."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._table, self._epoch = Table(self.limits), epoch

    def close(self) -> None:
        """Stop serving. In a forked child, lets go of the sockets and disturbs nobody."""
        if self._stopping:
            return
        self._stopping, forked = True, self._owner != os.getpid()
        if self._thread is not None and self._thread.is_alive():
            os.write(self._stop_writer, b"x")
            self._thread.join()
        for client in self._clients.values():
            client.sock.close()
        self._clients.clear()
        if forked:
            self._listener.close()
        else:
            ports.stop(self._listener)
        if self._giver is not None:
            self._giver.close()
        self._selector.close()
        os.close(self._stop_reader)
        os.close(self._stop_writer)

    def _serve(self) -> None:
        while not self._stopping:
            self.poll(None)

    # --- strangers -------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left: try again, not too often
            if self._strangers:
                self._refuse(next(iter(self._strangers.values())), "was the oldest of too many")
            time.sleep(0.001)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._clients) - len(self._strangers) >= self.limits.clients:
            sock.close()
            self._complain(address[0], f"is one client too many ({self.limits.clients}: clients)")
            return
        while len(self._strangers) >= self.limits.strangers:
            self._refuse(next(iter(self._strangers.values())), "was the oldest of too many")
        link = sock if self._tls is None else TlsSocket(sock, self._tls, server=True)
        client = _Client(link, address[0], time.monotonic() + self.limits.handshake_seconds)
        self._clients[sock.fileno()] = self._strangers[sock.fileno()] = client
        self._selector.register(sock, selectors.EVENT_READ, client)

    def _greet(self, client: _Client) -> None:
        """Go on with the handshake as far as the bytes that have come allow."""
        if not client.greeting and len(client.inbox) >= hello.SIZE:
            client.greeting = bytes(client.inbox[: hello.SIZE])
            del client.inbox[: hello.SIZE]
            problem = hello.objection(client.greeting, self._job, self._epoch)
            if problem:
                if is_tls(client.greeting):
                    problem = "asks for TLS, which this store does not have"
                self._refuse(client, problem)
                return
            client.answer = hello.server_hello(self._key, client.greeting)
            self._send(client, client.answer)
        if client.answer and len(client.inbox) >= hello.PROOF_BYTES:
            proof = bytes(client.inbox[: hello.PROOF_BYTES])
            del client.inbox[: hello.PROOF_BYTES]
            if not hello.proof_holds(self._key, client.greeting, client.answer, proof):
                self._refuse(client, "does not know the job's token")
                return
            client.known = True
            del self._strangers[client.sock.fileno()]

    def _refuse(self, client: _Client, why: str) -> None:
        self._complain(client.peer, why)
        self._drop(client)

    def _complain(self, peer: str, why: str) -> None:
        """Log a refusal, at most once a minute and host."""
        now = time.monotonic()
        if now - self._complaints.get(peer, -_COMPLAIN_EVERY) >= _COMPLAIN_EVERY:
            if len(self._complaints) > 1000:
                self._complaints.clear()
            self._complaints[peer] = now
            logger("disttrain.store").warning(
                "store on port %d: refused a connection from %s: it %s", self.port, peer, why
            )

    def _give_token(self) -> None:
        """Hand the token to a process of the same user; the kernel says whose it is."""
        assert self._giver is not None
        try:
            sock, _ = self._giver.accept()
        except OSError:
            return
        with sock:
            if peer_uid(sock) == os.getuid():
                try:
                    sock.send(self._token, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except OSError:
                    pass

    # --- clients ---------------------------------------------------------------------------------

    def _handle(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(client)
            if events & selectors.EVENT_READ and not self._read(client):
                self._drop(client)
        except StoreError as error:
            self._refuse(client, str(error))
        except OSError:
            self._drop(client)

    def _read(self, client: _Client) -> bool:
        """Take what has come and act on it; False at the end of the connection."""
        try:
            while self._take(client):
                if not (isinstance(client.sock, TlsSocket) and client.sock.has_more):
                    return True
                if client.sock.fileno() not in self._clients:
                    return True
            return False
        except BlockingIOError:  # of TLS's own words there are none for us
            return True

    def _take(self, client: _Client) -> bool:
        room = hello.SIZE if not client.greeting else hello.PROOF_BYTES
        data = client.sock.recv(_CHUNK if client.known else room - len(client.inbox))
        if not data:
            if client.answer and not client.known:
                self._complain(client.peer, "left before it proved that it knows the job's token")
            return False
        client.inbox += data
        if not client.known:
            self._greet(client)
        self._take_requests(client)
        return True

    def _take_requests(self, client: _Client) -> None:
        inbox = client.inbox
        if client.skip:
            gone = min(client.skip, len(inbox))
            client.skip -= gone
            del inbox[:gone]
        while client.known and client.waits_for is None and len(client.unsent) <= _MAX_UNSENT:
            if len(inbox) < _LENGTH.size:
                return
            (length,) = _LENGTH.unpack_from(inbox)
            if length > self.limits.total_bytes:
                raise StoreError(f"announced a request of {length} bytes")
            if length > self.limits.request_bytes:  # it is told, and what it sends thrown away
                client.skip = max(0, length - (len(inbox) - _LENGTH.size))
                del inbox[: _LENGTH.size + length]
                text = too_long(length, self.limits.request_bytes)
                self._send_frame(client, encode(REFUSED, (), (text.encode(),)))
                continue
            end = _LENGTH.size + length
            if len(inbox) < end:
                return
            request = decode(bytes(inbox[_LENGTH.size : end]))
            del inbox[:end]
            self._answer(client, request)
        if len(inbox) > 2 * self.limits.request_bytes:
            raise StoreError("sends requests without waiting for their answers")

    def _answer(self, client: _Client, request: Request) -> None:
        client.waits_for = None
        try:
            answer = self._table.apply(request)
        except StoreError as error:
            self._send_frame(client, encode(REFUSED, (), (str(error).encode(),)))
            return
        if answer is None:
            client.waits_for = request
            client.missing = self._table.missing(request)[0]
            return
        self._send_frame(client, encode(OK, (), answer))
        if request[0] in CHANGES:
            self._wake(request)

    def _wake(self, change: Request) -> None:
        """Answer who has waited for a key that has just been set."""
        keys = set(change[1])
        for client in list(self._clients.values()):
            if client.waits_for is not None and client.missing in keys:
                try:
                    self._answer(client, client.waits_for)
                    self._take_requests(client)
                except (StoreError, OSError):
                    self._drop(client)

    def _send_frame(self, client: _Client, body: bytes) -> None:
        self._send(client, _LENGTH.pack(len(body)) + body)

    def _send(self, client: _Client, data: bytes) -> None:
        client.unsent += data
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            if isinstance(client.sock, TlsSocket):
                client.sock.flush()
            while client.unsent:
                del client.unsent[: client.sock.send(client.unsent, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass
        waits = selectors.EVENT_READ if len(client.unsent) <= _MAX_UNSENT else 0
        if client.unsent or (isinstance(client.sock, TlsSocket) and client.sock.pending):
            waits |= selectors.EVENT_WRITE
        if self._selector.get_key(client.sock).events != waits:
            self._selector.modify(client.sock, waits, client)

    def _drop(self, client: _Client) -> None:
        fd = client.sock.fileno()
        if self._clients.pop(fd, None) is not None:
            self._strangers.pop(fd, None)
            self._selector.unregister(client.sock)
            client.sock.close()


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def _listen_locally(name: str) -> socket.socket:
    """Listen at an abstract name. A process that was forked from its last holder may have it for a
    moment, until it closes what it has inherited."""
    giver = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.monotonic() + _NAME_SECONDS
    while True:
        try:
            giver.bind("\0" + name)
            giver.listen(1024)
            giver.setblocking(False)
            return giver
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                giver.close()
                raise StoreError(
                    f"store: cannot listen at the local name {name!r}: {error}"
                ) from None
        context.sleep(0.005)


def _after_fork_in_child() -> None:
    """The child lets go of ports and names, so that they are free when this process leaves them."""
    for server in tuple(context.current().slots.pop(_SERVERS, ())):
        server.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
