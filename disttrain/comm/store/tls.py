"""A store's connections within TLS: a socket that does not block, and what both ends need for it.

TLS 1.3 with certificates on both sides; the proof of the token (``hello``) comes within it. What
arrives is decrypted as it comes and nothing waits for more, so one thread serves thousands. A side
that has no TLS is told so, and hears nothing else: there is no way back to plain text.

Knows sockets and Python's ``ssl``, which it loads with its first connection; no certificates.
"""

from __future__ import annotations

import importlib
import socket
from dataclasses import dataclass
from typing import Any

from ...errors import StoreError

_CHUNK = 256 << 10
_BEFORE = 32 << 10  # bytes of a handshake, at most: two certificates are a few thousand
_RECORD = 22  # what each record that comes from a TLS client or server begins with: a handshake's
_ALERT = 21
_NO_TLS = bytes([_ALERT, 3, 3, 0, 2, 2, 70])  # fatal: protocol version (RFC 8446, 6)


@dataclass(frozen=True)
class Tls:
    """What a store and its clients encrypt with. ``server``, ``client``: contexts of ``ssl``;
    ``name``: that the server's certificate must bear."""

    server: Any
    client: Any
    name: str


class TlsFailed(StoreError):
    """The other end does not get through TLS, or has none."""


class TlsSocket:
    """``sock``, a connected socket that does not block, within TLS. Raises ``BlockingIOError``
    where there is nothing yet, as that does."""

    def __init__(self, sock: socket.socket, tls: Tls, server: bool) -> None:
        self.sock, self._server = sock, server
        self._ssl: Any = importlib.import_module("ssl")
        self._incoming, self._outgoing = self._ssl.MemoryBIO(), self._ssl.MemoryBIO()
        self._tls = (tls.server if server else tls.client).wrap_bio(
            self._incoming, self._outgoing, server_side=server,
            server_hostname=None if server else tls.name,
        )  # fmt: skip
        self._plain, self._unsent = bytearray(), bytearray()
        self._shaken, self._ended, self._heard = False, False, 0
        self.first = b""  # what came first, as it came

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    @property
    def pending(self) -> int:
        """Bytes that wait for room to be sent."""
        return len(self._unsent)

    @property
    def has_more(self) -> bool:
        """Was something decrypted that nobody has asked for yet?"""
        return bool(self._plain)

    def shake(self) -> bool:
        """Go on with the handshake; is it over? Raises ``TlsFailed``."""
        if not self._shaken:
            self._pull(4096)
            self._go_on()
            self.flush()
        return self._shaken

    def _go_on(self) -> None:
        try:
            self._tls.do_handshake()
            self._shaken = True
        except self._ssl.SSLWantReadError:
            if self._ended:
                raise TlsFailed("closed the connection in the middle of TLS's handshake") from None
        except self._ssl.SSLError as error:
            self._say_alert()
            raise self._failed(error) from None

    def _failed(self, error: Any) -> TlsFailed:
        if self.first and self.first[0] not in (_RECORD, _ALERT):
            return TlsFailed("has no TLS")
        why = getattr(error, "verify_message", "") or error.reason or error
        return TlsFailed(f"does not get through TLS ({str(why).lower().replace('_', ' ')})")

    def _say_alert(self) -> None:
        """TLS's own words for it, which ``ssl`` has none of for who does not speak TLS at all."""
        if self._server and self.first and not is_tls(self.first):
            self._unsent += _NO_TLS
        try:
            self.flush()
        except OSError:
            pass

    def recv(self, most: int) -> bytes:
        """At most so many bytes; none at the end of the connection."""
        if not self._plain:
            if not self._shaken and not self.shake():
                raise BlockingIOError
            self.flush()
            self._pull(_CHUNK)
            self._decrypt()
        if not self._plain:
            if self._ended:
                return b""
            raise BlockingIOError
        data = bytes(self._plain[:most])
        del self._plain[:most]
        return data

    def _decrypt(self) -> None:
        try:
            while part := self._tls.read(_CHUNK):
                self._plain += part
            self._ended = True
        except self._ssl.SSLWantReadError:
            pass
        except self._ssl.SSLZeroReturnError:
            self._ended = True
        except self._ssl.SSLError as error:
            if not self._ended:
                raise self._failed(error) from None
        self.flush()  # TLS may have something to say by itself

    def _pull(self, most: int) -> None:
        """Take what has come of the connection, as it came."""
        if self._ended:
            return
        try:
            data = self.sock.recv(most)
        except BlockingIOError:
            return
        self.first = self.first or data[:64]
        self._heard += len(data)
        if not self._shaken and self._heard > _BEFORE:
            raise TlsFailed("sends more than a handshake has")
        self._incoming.write(data)
        if not data:
            self._ended = True
            self._incoming.write_eof()

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Take some of ``data`` and send it as there is room; nothing more is taken while that
        waits."""
        self.flush()
        if self._unsent or not self._shaken:
            raise BlockingIOError
        with memoryview(data) as view:
            taken: int = self._tls.write(view[:_CHUNK])
        self.flush()
        return taken

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass


def is_tls(first: bytes) -> bool:
    """Does a connection begin as TLS does?"""
    return first[:2] == bytes([_RECORD, 3])


def is_alert(answer: bytes) -> bool:
    """Is this what TLS says to those that do not speak it?"""
    return answer[:2] == bytes([_ALERT, 3])
