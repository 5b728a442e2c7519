"""A store in one process that the others reach over TCP.

Every connection proves that it knows the job's token (see ``hello``). A launcher hands the token to
its ranks. Ranks that were started some other way on one machine (``multiprocessing``, a shell) get
it from the rank that hosts the store, over a Unix socket with an abstract name made of user and
port: the kernel tells both sides which user the other one is, no file is left behind, and nobody
else can ask. Such a store listens on loopback only, whatever name it is given.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable

from ... import context
from ...errors import ConfigError, StoreError, StoreLost, StoreRefused, StoreUnreached, WaitTimeout
from ..job.worker_env import TOKEN_FILE, token_file_told
from . import hello
from .base import DEFAULT_TIMEOUT, Store, Timeout, keys_text, seconds, wait_for
from .connecting import Attempt, WrongStore, local_name
from .ports import is_loopback, is_of_this_machine, known
from .server import StoreServer
from .table import (
    ADD,
    BLOCKING,
    HIDDEN,
    LEASE,
    REFUSED,
    RENEW,
    SINCE,
    Limits,
    Request,
    decode,
    encode,
    too_long,
)
from .tls import Tls, TlsSocket
from .token_file import HOW_TO_MAKE_ONE, read_token_file

_Link = socket.socket | TlsSocket

_LENGTH = struct.Struct("<I")
_MAX_REQUEST = Limits.total_bytes
_MAX_ANSWER = 128 << 20
_JOINED = HIDDEN + b"joined"
_CONNECT_EVERY = 0.02
_WRONG_SECONDS = 0.5  # as long a store of another job is taken for one that closes just now
_TELLS_SECONDS = 0.3  # of a try that goes on, before it says more than the last one that ended


class TCPStore(Store):
    """A client of a store, and with ``is_master`` also the process that holds it.

    ``world_size``: the master waits until so many stores (its own too) have joined, unless
    ``wait_for_workers`` is false. ``port`` 0 takes a free one (see ``.port``). With ``token`` (32
    secret bytes; None: those of ``DISTTRAIN_TOKEN_FILE``, unless ``host_name`` is loopback) the
    store listens on ``host_name``; without one it serves this machine and this user only, and
    another machine's address is refused. ``use_libuv`` names one of PyTorch's two servers;
    here is one for both. ``waiting``: is told, again and again, what a store that nobody has let in
    yet waits for; what it raises ends that. ``tls``: what connections are encrypted with, on all
    sides alike.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Timeout = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        *,
        use_libuv: bool = True,
        token: bytes | None = None,
        job_id: str = "",
        epoch: int = 0,
        waiting: Callable[[str], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(timeout)
        self._tls = tls
        _check_arguments(port, world_size, is_master, token)
        token = _token_for(host_name, port) if token is None else token
        self.host = host_name if token is not None else "127.0.0.1"
        self._asked = host_name
        self.port, self.is_master, self.epoch = port, is_master, epoch
        self.libuvBackend = use_libuv
        self._job, self._token = hello.job_hash(job_id), token
        self._told = token is not None
        self._waiting = waiting
        self._server: StoreServer | None = None
        self._owner = os.getpid()
        self._idle: list[tuple[_Link, int]] = []  # connections, with who opened them
        self._lock, self._closed = threading.Lock(), False
        if is_master:
            shared = None if token is not None else local_name
            self._token = token if token is not None else os.urandom(hello.TOKEN_BYTES)
            self._server = StoreServer(
                self._token, self.host, port, job_id=job_id, epoch=epoch, share_token_as=shared,
                tls=tls,
            )  # fmt: skip
            self.port = self._server.port
            self._server.start()
        try:
            self._join(world_size if is_master and wait_for_workers else None)
        except BaseException:
            self.close()
            raise

    def _join(self, world_size: int | None) -> None:
        """Say that we are here; the master waits for the others."""
        joined = int(self._ask(ADD, [_JOINED], b"1")[0])

        def all_here() -> bool:
            nonlocal joined
            joined = int(self._ask(ADD, [_JOINED], b"0")[0])
            return joined >= (world_size or 0)

        if world_size is not None and joined < world_size:
            context.wait_until(
                all_here,
                lambda: f"TCPStore on port {self.port}: {joined} of {world_size} ranks to join",
                self._timeout,
            )

    def close(self) -> None:
        """Close the connections and, on the master, the store itself."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for link, _ in idle:
            link.close()
        if self._server is not None and self._owner == os.getpid():
            self._server.close()
            self._server = None

    @property
    def meeting_host(self) -> str | None:
        return self.host if self._told else None

    @property
    def only_here(self) -> str:
        if self._told or is_loopback(self._asked):
            return ""
        return (
            f"Only processes of this machine can come to {self._asked}: there is no token file "
            f"({TOKEN_FILE}), without which nothing listens on a network (docs/hosts.md)"
        )

    def secret(self, purpose: str) -> bytes:
        return hello.derive_key(self._token, purpose) if self._told and self._token else b""

    def num_keys(self) -> int:
        return super().num_keys() + 1  # the one that counts who has joined

    def lease(self, key: str, value: bytes, seconds: float) -> None:
        """Set ``key`` until ``seconds`` after ``renew`` last confirms it, by the clock of whoever
        holds the store."""
        self._ask(LEASE, [key], value, b"%d" % round(seconds * 1000))

    def renew(self, key: str, seconds: float) -> bool:
        """Confirm what ``lease`` has set. False: it has gone."""
        return self._ask(RENEW, [key], b"%d" % round(seconds * 1000))[0] == b"1"

    def since(self, prefix: str, revision: int = 0) -> tuple[int, dict[str, bytes] | None]:
        """The store's revision, and where that is another one than ``revision``, all keys that
        begin with ``prefix``."""
        now, *found = self._ask(SINCE, [prefix], b"%d" % revision)
        if int(now) == revision:
            return revision, None
        return int(now), {k.decode(): v for k, v in zip(found[::2], found[1::2], strict=True)}

    def _call(self, request: Request, timeout: float) -> list[bytes]:
        link = self._take_link(timeout)
        try:
            answer = self._exchange(link, request, timeout)
        except BaseException:  # the answer may still come: this connection is of no use any more
            link.close()
            raise
        self._give_back(link)
        status, _, values = decode(answer)
        if status == REFUSED:
            raise StoreError(values[0].decode("utf-8", "replace"))
        return values

    def _exchange(self, link: _Link, request: Request, timeout: float) -> bytes:
        """Send a request and wait for its answer."""
        body = encode(*request)
        if len(body) > _MAX_REQUEST:  # so much that a server would not even throw it away
            raise StoreError(too_long(len(body), Limits.request_bytes))
        inbox = bytearray()
        try:
            _send(link, _LENGTH.pack(len(body)) + body, timeout)
            wait_for(
                request, lambda: _receive(link, inbox), lambda: self._awaited(request), timeout
            )
        except WaitTimeout:
            raise
        except OSError as error:
            raise StoreLost(
                f"store at {self.host}:{self.port}: the connection broke ({error}). The process "
                "that hosts the store has ended or has closed it"
            ) from None
        return bytes(inbox[_LENGTH.size :])

    def _awaited(self, request: Request) -> str:
        where = f"store at {self.host}:{self.port}"
        if request[0] in BLOCKING:
            return f"{where}: {keys_text(list(request[1]))} to be set"
        return f"{where}: its answer"

    # --- connecting ------------------------------------------------------------------------------

    def _take_link(self, timeout: float) -> _Link:
        """A connection that nobody uses: one waits in a ``get`` while another thread sets."""
        while True:
            with self._lock:
                if self._closed:
                    raise StoreError(f"store at {self.host}:{self.port}: it was closed here")
                link, pid = self._idle.pop() if self._idle else (None, 0)
            if link is None:
                return self._connect(timeout)
            if pid == os.getpid():
                return link
            link.close()  # the process that we were forked from speaks on it

    def _give_back(self, link: _Link) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append((link, os.getpid()))
                return
        link.close()

    def _connect(self, timeout: float) -> _Link:
        """Connect and shake hands, again and again until the deadline: the master may be late. Who
        finds a store of another job is told soon: it may only be one that closes just now."""
        link: _Link | None = None
        attempt: Attempt | None = None
        trouble, next_try, begun = "", 0.0, 0.0
        wrong_since: float | None = None

        def connected() -> bool:
            nonlocal link, attempt, trouble, next_try, wrong_since, begun
            if trouble and self._waiting is not None:
                self._waiting(what())
            if attempt is None:
                if time.monotonic() < next_try:
                    return False
                begun = time.monotonic()
                attempt = Attempt(
                    self.host, self.port, self._token, self._job, self.epoch, self._tls
                )
            try:
                link = attempt.step()
                return link is not None
            except (OSError, StoreError) as error:
                now = time.monotonic()
                attempt, trouble, next_try = None, str(error), now + _CONNECT_EVERY
                if not isinstance(error, WrongStore):
                    wrong_since = None
                    return False
                wrong_since = now if wrong_since is None else wrong_since
                if now - wrong_since > _WRONG_SECONDS:
                    raise StoreRefused(f"store at {self.host}:{self.port}: {trouble}") from None
                return False

        def what() -> str:
            if attempt is None or (trouble and time.monotonic() - begun < _TELLS_SECONDS):
                last = trouble
            else:
                last = attempt.found or trouble or attempt.doing
            return f"the store at {self.host}:{self.port} to accept us (last try: {last})"

        try:
            context.wait_until(connected, what, timeout)
        except StoreRefused:  # a kind of it, too
            raise
        except WaitTimeout as error:
            raise StoreUnreached(str(error)) from None
        finally:
            if attempt is not None:
                attempt.close()
        assert link is not None
        return link


def _token_for(host: str, port: int) -> bytes | None:
    """The job's token for a store at ``host``; None where that is on this machine and there is no
    such token. Raises ``ConfigError`` for another machine, which cannot be met without one."""
    if is_loopback(host):
        return None
    file = token_file_told()
    if file is not None:
        return read_token_file(file)
    if host != socket.gethostname() and not is_of_this_machine(*known(host, port)):
        raise ConfigError(
            f"store at {host}:{port}: that is no address of this machine, and there is no token "
            f"file; ranks of several machines need one. {HOW_TO_MAKE_ONE}, and name it on each of "
            f"them ({TOKEN_FILE}=FILE); or give an address of this machine (MASTER_ADDR)"
        )
    return None


def _check_arguments(
    port: int, world_size: int | None, is_master: bool, token: bytes | None
) -> None:
    if world_size == 0:
        raise ConfigError(
            "TCPStore world size cannot be 0: world_size=0 given; give the number of stores that "
            "shall join, or None"
        )
    if not 0 <= port <= 65535 or (port == 0 and not is_master):
        raise StoreError(
            f"TCPStore: port {port} given; 1 to 65535 is needed, or 0 (any free one) on the master"
        )
    if world_size is not None and world_size < 1:
        raise StoreError(f"TCPStore: world_size={world_size} given; at least 1 is needed")
    if token is not None and len(token) < 16:
        raise StoreError(f"TCPStore: a token of {len(token)} bytes; 16 secret bytes or more")


def _send(link: _Link, data: bytes, timeout: float) -> None:
    """Send it all on a socket that does not block."""
    view = memoryview(data)

    def sent() -> bool:
        nonlocal view
        try:
            view = view[link.send(view, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            return False
        return not view

    context.wait_until(sent, lambda: "the store to take a request", seconds(timeout))


def _receive(link: _Link, inbox: bytearray) -> bool:
    """Take what has come of one answer; True when it is complete."""
    need = _LENGTH.size
    if len(inbox) >= _LENGTH.size:
        need += _LENGTH.unpack_from(inbox)[0]
    if need > _MAX_ANSWER:
        raise OSError(f"an answer of {need} bytes was announced")
    try:
        data = link.recv(need - len(inbox))
    except BlockingIOError:
        return False
    if not data:
        raise ConnectionError("closed by the other side")
    inbox += data
    if len(inbox) < _LENGTH.size:
        return False
    return len(inbox) == _LENGTH.size + _LENGTH.unpack_from(inbox)[0]
