"""How two ends of a link find each other: ``Listener`` listens, ``call_on`` connects.

A listener has one thread, on which every conversation (``handshake``) goes on as far as what has
come allows. Until one is over, its connection is a stranger's: at most ``strangers`` are kept (the
oldest goes), each for at most ``seconds``. Refusals are logged, at most one a minute.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from ... import context
from ...errors import CommError, WaitTimeout
from .handshake import Admit, Identity, Opened, Refused, Steps, answer, ask
from .link import Link
from .pace import FIRST_PATIENCE, LEAST_PATIENCE, expect_signs, patience_for, send_at_once

SECONDS, STRANGERS = 2.0, 256
_AGAIN = 0.01  # seconds after which one who was pushed out tries again
_COMPLAIN_EVERY = 60.0

_log = logging.getLogger("disttrain.links")


class _Stranger:
    """A connection whose conversation is not over. ``go_on`` until it is."""

    def __init__(self, sock: socket.socket, steps: Steps, deadline: float) -> None:
        self.sock, self.deadline = sock, deadline
        self._steps, self._got, self._wants = steps, b"", 0
        self._say(b"", first=True)

    def go_on(self) -> Opened | None:
        """Take what has come; how the conversation ended, once it has. Raises ``Refused``."""
        try:
            data = self.sock.recv(self._wants - len(self._got))
        except BlockingIOError:
            return None
        except OSError as error:
            raise Refused(f"broke the connection ({error.strerror or error})") from None
        if not data:
            raise Refused("closed the connection")
        self._got += data
        return self._say(self._got) if len(self._got) == self._wants else None

    def _say(self, got: bytes, first: bool = False) -> Opened | None:
        try:
            while True:
                said, self._wants = next(self._steps) if first else self._steps.send(got)
                self._send(said)
                got, first = b"", False
                if self._wants:
                    self._got = b""
                    return None
        except StopIteration as end:
            opened: Opened = end.value
            self._send(opened.last)
            return opened

    def _send(self, said: bytes) -> None:
        # All of it is a few kilobytes, which a new connection has room for.
        try:
            if said and self.sock.send(said, socket.MSG_NOSIGNAL) != len(said):
                raise Refused("does not take the answer")
        except OSError as error:
            raise Refused(f"broke the connection ({error.strerror or error})") from None


class Listener:
    """Listens on a free port of ``host``: ``host`` and ``port`` say where, from the start.

    ``admit(number, said)`` is asked when the other end has proved itself: what it returns is said
    in answer, and where it raises ``Refused`` the other end is told why. ``take(link)`` is given
    the link then. Both run on the listener's thread, and must not wait.
    """

    def __init__(
        self,
        me: Identity,
        host: str,
        admit: Admit,
        take: Callable[[Link], None],
        *,
        port: int = 0,
        seconds: float = SECONDS,
        strangers: int = STRANGERS,
    ) -> None:
        self._me, self._admit, self._take = me, admit, take
        self._seconds, self._most = seconds, strangers
        self._listener = listen(host, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._strangers: dict[int, _Stranger] = {}
        self._complained = -_COMPLAIN_EVERY
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._closing, self._pid = False, os.getpid()
        self._over = threading.Event()
        context.start_thread(self._serve, f"links-{me.number}")

    # --- its thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing:
                for fd, _ in self._epoll.poll(self._time_left()):
                    self._attend(fd)
                self._end_late_ones()
        finally:
            for stranger in self._strangers.values():
                stranger.sock.close()
            self._strangers.clear()
            self._over.set()

    def _time_left(self) -> float | None:
        if not self._strangers:
            return None
        return max(0.0, next(iter(self._strangers.values())).deadline - time.monotonic())

    def _attend(self, fd: int) -> None:
        try:
            if fd == self._listener.fileno():
                self._meet()
            elif fd in self._strangers:
                self._go_on(fd, self._strangers[fd])
        except Exception:
            _log.exception("links of %d: a connection was not handled", self._me.number)

    def _meet(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left: try again, not too often
            if self._strangers:
                self._refuse(next(iter(self._strangers)), "was the oldest of too many")
            time.sleep(0.001)
            return
        while len(self._strangers) >= self._most:
            self._refuse(next(iter(self._strangers)), "was the oldest of too many")
        sock.setblocking(False)
        steps = answer(self._me, self._admit)
        fd = sock.fileno()
        self._strangers[fd] = _Stranger(sock, steps, time.monotonic() + self._seconds)
        self._epoll.register(fd, select.EPOLLIN)

    def _go_on(self, fd: int, stranger: _Stranger) -> None:
        try:
            opened = stranger.go_on()
        except Refused as error:
            self._refuse(fd, str(error))
            return
        except BaseException:
            self._refuse(fd, "could not be answered")
            raise
        if opened is None:
            return
        del self._strangers[fd]
        self._epoll.unregister(fd)
        self._take(Link(stranger.sock, opened.number, opened.said, opened.keys))

    def _end_late_ones(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, one in self._strangers.items() if one.deadline <= now]:
            self._refuse(fd, "did not finish the handshake in time")

    def _refuse(self, fd: int, why: str) -> None:
        stranger = self._strangers.pop(fd)
        self._epoll.unregister(fd)
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            _log.warning(
                "links of %d: refused a connection from %s: it %s",
                self._me.number, _where(stranger.sock), why,
            )  # fmt: skip
        stranger.sock.close()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Listen no more; links that were taken stay. In a forked child, disturb nobody."""
        if self._closing:
            return
        self._closing = True
        if os.getpid() == self._pid:
            os.eventfd_write(self._wake, 1)
            self._over.wait()
        for stranger in self._strangers.values():
            stranger.sock.close()
        self._listener.close()
        self._epoll.close()
        os.close(self._wake)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on one address of this host. Raises ``CommError``."""
    try:
        kind, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(kind, socket.SOCK_STREAM)
        try:
            send_at_once(made)
            if port:  # one that was used a moment ago may be used again
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(1024)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made
    except OSError as error:
        raise CommError(
            f"links: cannot listen on {host} port {port} ({error.strerror or error}); the address "
            "of one of this host's network interfaces is needed"
        ) from None


def call_on(
    me: Identity,
    peer: int,
    host: str,
    port: int,
    said: bytes,
    seconds: float = SECONDS,
    timeout: float | None = None,
) -> tuple[Link, bytes]:
    """A link to ``peer``, whose listener is at ``host``:``port``, and what it says in answer to
    ``said``. Tries again while a crowd of strangers pushes us out. Raises ``Refused`` after
    ``seconds``. With ``timeout`` that is the limit, for as long as the other host shows that it is
    there: where packets are lost, what takes a moment elsewhere takes seconds.
    """
    deadline = time.monotonic() + (seconds if timeout is None else timeout)
    again = min(deadline, time.monotonic() + max(seconds, LEAST_PATIENCE))
    while True:
        begun = time.monotonic()
        try:
            return _try_to_call(me, peer, (host, port), said, deadline, timeout is not None)
        except WaitTimeout:
            waited = seconds if timeout is None else timeout
            raise Refused(f"{host}:{port} did not answer within {waited:g} s") from None
        except ConnectionRefusedError:
            raise Refused(f"nobody listens at {host}:{port}") from None
        except OSError as error:
            now = time.monotonic()
            # It may have had enough of a handshake whose packets were lost, and takes another one.
            late = timeout is not None and now - begun > LEAST_PATIENCE / 2
            if now > (deadline if late else again) or isinstance(error, TimeoutError):
                why = error.strerror or error
                raise Refused(f"{host}:{port} cannot be reached ({why})") from None
        context.sleep(_AGAIN)


def _try_to_call(
    me: Identity, peer: int, where: tuple[str, int], said: bytes, deadline: float, patient: bool
) -> tuple[Link, bytes]:
    sock = _connected(where, deadline, patient)
    try:
        steps = ask(me, peer, said)
        got: bytes | None = None
        while True:
            try:
                sends, wants = next(steps) if got is None else steps.send(got)
            except StopIteration as end:
                opened: Opened = end.value
                break
            sock.sendall(sends)  # a few kilobytes, which a new connection has room for
            got = b""
            while len(got) < wants:
                _wait(sock, select.POLLIN, deadline, f"rank {peer} to answer at {where[0]}")
                data = sock.recv(wants - len(got))
                if not data:
                    raise ConnectionResetError(0, "it closed the connection during the handshake")
                got += data
        expect_signs(sock, 0.0)
        return Link(sock, peer, opened.said, opened.keys), opened.said
    except BaseException:
        sock.close()
        raise


def _connected(where: tuple[str, int], deadline: float, patient: bool) -> socket.socket:
    """A socket that is connected with ``where``. Raises ``OSError``."""
    error: OSError | None = None
    for kind, _, _, _, place in socket.getaddrinfo(*where, type=socket.SOCK_STREAM):
        sock = socket.socket(kind, socket.SOCK_STREAM)
        try:
            send_at_once(sock)
            sock.setblocking(False)
            if patient:
                expect_signs(sock, FIRST_PATIENCE)
            code = sock.connect_ex(place)
            if code == errno.EINPROGRESS:
                _wait(sock, select.POLLOUT, deadline, f"a connection with {where[0]}")
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            if patient:
                expect_signs(sock, patience_for(sock))
            return sock
        except OSError as why:
            error = why
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise error or OSError(0, "it has no address")


def _wait(sock: socket.socket, event: int, deadline: float, what: str) -> None:
    """Until ``sock`` is ready; it is, too, when the kernel gives it up."""
    poll = select.poll()
    poll.register(sock, event)
    left = max(0.0, deadline - time.monotonic())
    context.wait_until(lambda: bool(poll.poll(0)), lambda: what, left, lambda s: _sleep(poll, s))


def _sleep(poll: select.poll, seconds: float) -> None:
    poll.poll(1000 * seconds)


def _where(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "nowhere"
