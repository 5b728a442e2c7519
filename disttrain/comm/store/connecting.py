"""One try to connect to a store: from its address to a socket on which both have shaken hands.

A try never blocks: it is a generator that goes on whenever it is asked to, so that who waits for
it keeps the deadline, whatever sits at the address: nobody, a listener that never answers, a
program that speaks another protocol, a resolver that is slow. Knows sockets and the handshake; no
requests, no deadline of its caller.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Generator

from ...errors import StoreError
from . import hello
from .server import peer_uid
from .tls import Tls, TlsFailed, TlsSocket, is_alert

_TRY_SECONDS = 5.0  # for one address and its handshake, or for a name
_LOOKS = 128  # at a process that is alone
_SILENT = (
    "something listens there, but does not answer as a store does. See what has this port "
    "(ss -ltnp) and give a free one (MASTER_PORT), unless the host of rank 0 is only busy"
)


class WrongStore(StoreError):
    """What answers at the address is no store of this job."""


class Attempt:
    """One try. ``step`` goes on with it; ``doing`` says what it waits for just now, and ``found``
    what sits at the address, once something does."""

    def __init__(
        self, host: str, port: int, token: bytes | None, job: bytes, epoch: int,
        tls: Tls | None = None,
    ) -> None:  # fmt: skip
        self._tls = tls
        self._host, self._port, self._token = host, port, token
        self._job, self._epoch = job, epoch
        self.doing = self.found = ""
        self._link: socket.socket | TlsSocket | None = None
        self._steps = self._shake()

    def step(self) -> socket.socket | TlsSocket | None:
        """The connected socket, which does not block, or None while there is none. Raises
        ``OSError`` or ``StoreError`` where the try has failed."""
        for _ in self._steps:
            return None
        link, self._link = self._link, None
        return link

    def close(self) -> None:
        """Give up."""
        self._steps.close()

    def _shake(self) -> Generator[None, None, None]:
        token = self._token
        if token is None:
            token = yield from self._ask_token()
        sock = yield from self._reach()
        link: socket.socket | TlsSocket = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                link = TlsSocket(sock, self._tls, server=False)
                self.found = _SILENT
                yield from _shake_tls(link)
            mine = hello.client_hello(self._job, self._epoch)
            _send_all(link, mine)
            self.found = _SILENT
            answer = yield from _read_exactly(link, hello.SIZE, _SILENT)
            proof = hello.client_proof(hello.derive_key(token, "store"), mine, answer)
            if proof is None:
                raise WrongStore(_objection(answer))
            _send_all(link, proof)
        except BaseException:
            link.close()
            raise
        self._link = link

    def _reach(self) -> Generator[None, None, socket.socket]:
        """Connect to the first address of the host that lets us."""
        self.doing = f"the name {self._host!r} could not be looked up yet"
        last: OSError | None = None
        for family, address in (yield from _look_up(self._host, self._port)):
            self.doing = "no answer from this address"
            link = socket.socket(family, socket.SOCK_STREAM)
            try:
                link.setblocking(False)
                yield from _connect(link, address)
                return link
            except OSError as error:
                link.close()
                last = error
            except BaseException:
                link.close()
                raise
        assert last is not None
        raise last

    def _ask_token(self) -> Generator[None, None, bytes]:
        """The token of the store that a process of this user hosts on the port."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.setblocking(False)
            try:
                s.connect("\0" + local_name(self._port))
            except OSError as error:
                raise StoreError(
                    f"no store of this user is on port {self._port} of this machine ({error})"
                ) from None
            if peer_uid(s) != os.getuid():
                raise StoreError(
                    f"another user holds the local name of the store on port {self._port}"
                )
            self.found = "who holds its local name does not answer"
            return (yield from _read_exactly(s, hello.TOKEN_BYTES, self.found))


def local_name(port: int) -> str:
    """The abstract name at which a store without a token file gives its token to this user."""
    return f"disttrain-store-{os.getuid()}-{port}"


class Alone:
    """Says on this machine, for as long as it is open, that a world of one has begun where a port
    was told: it hosts no store, and a process that waits for one there is to know why."""

    def __init__(self, port: int) -> None:
        self._socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind("\0" + _alone_name(port))
            self._socket.listen(_LOOKS)  # nobody is let in: each look takes one of these places
        except OSError:  # another one has said so
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def who_is_alone(port: int) -> int:
    """The process that has said so, ``Alone``; 0 where none is known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.setblocking(False)
        try:
            s.connect("\0" + _alone_name(port))
            return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError:
            return 0


def _alone_name(port: int) -> str:
    return f"disttrain-alone-{os.getuid()}-{port}"


def _objection(answer: bytes) -> str:
    if not hello.is_server(answer):
        return (
            "another program answers there, not a store. Give a port that is free on the host of "
            "rank 0 (MASTER_PORT)"
        )
    return (
        "the other side does not know this job's token. Give every rank the same token file "
        "(DISTTRAIN_TOKEN_FILE), and another job another port (MASTER_PORT)"
    )


def _look_up(host: str, port: int) -> Generator[None, None, list[tuple[int, tuple]]]:
    """The (family, address) pairs of a host. A resolver may take its time: a thread asks it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [(entry[0], entry[4]) for entry in found]
    except socket.gaierror:
        pass  # it is a name
    result: list[list] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            result.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)

    asking = threading.Thread(target=ask, name="store-name", daemon=True)
    asking.start()
    limit = time.monotonic() + _TRY_SECONDS
    while asking.is_alive():
        if time.monotonic() > limit:
            raise StoreError(_unknown(host, "the resolver does not answer"))
        yield
    if failed:
        raise StoreError(_unknown(host, failed[0].strerror or str(failed[0])))
    return [(entry[0], entry[4]) for entry in result[0]]


def _unknown(host: str, why: str) -> str:
    return (
        f"the name {host!r} is not known ({why}). Give the name or address of the host of rank 0 "
        "(MASTER_ADDR)"
    )


def _connect(link: socket.socket, address: tuple) -> Generator[None, None, None]:
    code = link.connect_ex(address)
    limit = time.monotonic() + _TRY_SECONDS
    if code == errno.EINPROGRESS:
        poll = select.poll()
        poll.register(link, select.POLLOUT)
        while not poll.poll(0):
            if time.monotonic() > limit:
                raise TimeoutError(errno.ETIMEDOUT, "no answer from this address")
            yield
        code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _send_all(link: socket.socket | TlsSocket, data: bytes) -> None:
    """64 bytes fit into what a new connection holds."""
    if link.send(data, socket.MSG_NOSIGNAL) != len(data):
        raise StoreError("the other side takes nothing")


def _shake_tls(link: TlsSocket) -> Generator[None, None, None]:
    limit = time.monotonic() + _TRY_SECONDS
    try:
        while not link.shake():
            if time.monotonic() > limit:
                raise StoreError(_SILENT)
            yield
    except (TlsFailed, ConnectionResetError) as error:
        if link.first:
            raise WrongStore(f"the other side {error}. {_ALIKE}") from None
        raise WrongStore(
            "TLS is asked for here, and the other side hangs up when it begins: it has none, or "
            "is of another job. Ask for it on all nodes, or on none (--rdzv-conf tls=1)"
        ) from None


_ALIKE = (
    "Give all nodes the same token file, or certificates of one authority (--rdzv-conf "
    "cert=FILE,key=FILE,cacert=FILE)"
)


def _read_exactly(
    sock: socket.socket | TlsSocket, size: int, silent: str
) -> Generator[None, None, bytes]:
    data, limit = b"", time.monotonic() + _TRY_SECONDS
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except TlsFailed as error:  # TLS 1.3 tells a client so that its certificate is refused
            raise WrongStore(f"the other side {error}. {_ALIKE}") from None
        except BlockingIOError:
            if time.monotonic() > limit:
                raise StoreError(silent) from None
            yield
            continue
        if not more and is_alert(data):
            raise WrongStore(
                "the store there asks for TLS, which is not asked for here. Ask for it on all "
                "nodes, or on none (--rdzv-conf tls=1)"
            )
        if not more:
            raise StoreError(
                "the other side closed the connection during the handshake: it is about to end, or "
                "belongs to another job or generation"
            )
        data += more
    return data
