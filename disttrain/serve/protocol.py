"""HTTP/1.1 for uvicorn: a connection whose requests are whole before anybody looks at them.

httptools reads the grammar. This class holds the limits (of heads, bodies and time), answers in the
order of requests, and gives each one to the front at once; what the front does not answer itself
runs as ASGI. There is no stream, no upgrade and no trailer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib import parse

from ..errors import ConfigError
from . import journal
from .refusal import Refused, shown

try:
    import httptools
except ImportError as error:
    raise ConfigError(
        f"serve: {error.name} is missing, which reads requests: pip install 'disttrain[serve]'"
    ) from None

_MOST_HEAD = 32 << 10  # bytes of a request's first line and headers
_MOST_READ = _MOST_HEAD + (256 << 10)  # of reads that have not ended a head
_MOST_HEADERS = 100
_TOLD = 32  # connections over the limit that are told so; more are closed at once
_LINGER = 2.0  # seconds in which what a refused client still sends is thrown away
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode("ascii") for s in HTTPStatus}
JSON = b"application/json"


@dataclass(slots=True, eq=False)
class HTTPRequest:
    """``refused``: it is answered so, and the connection ends. ``held``: bytes of it that are
    here."""

    method: bytes
    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    parts: list[bytes] = field(default_factory=list)
    keep_alive: bool = True
    version: str = "1.1"
    refused: Refused | None = None
    held: int = 0


class Front(Protocol):
    """Who is asked. ``admit`` sees a request before its body has come, and may raise ``Refused``;
    ``held`` is bytes of all requests that are here."""

    held: int
    handling: int
    draining: bool
    most_connections: int

    def admit(self, request: HTTPRequest, connections: int) -> int:
        """How long its body may be."""

    def room(self, size: int) -> None:
        """Raise ``Refused`` where so many more bytes are too many."""

    def handle(self, connection: Connection, request: HTTPRequest) -> bool:
        """Answer it, now or later; or have it answered as ASGI: False."""

    def refuse(self, connection: Connection, refused: Refused) -> None:
        """Answer what was no request."""


class Connection(asyncio.Protocol):
    """One connection (see ``uvicorn.protocols``)."""

    def __init__(
        self,
        front: Front,
        patience: float,
        idle: float,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.front, self.patience, self.idle = front, patience, idle
        self.config, self.state, self.app_state = config, server_state, app_state
        self.loop = _loop or asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.transport: Any = None
        self.reading: HTTPRequest | None = None  # its end has not come
        self.pending: deque[HTTPRequest] = deque()  # whole, in order
        self.current: HTTPRequest | None = None  # being answered
        self.cancel: Callable[[], None] | None = None  # nobody waits for the answer any more
        self.head_size = self.most_body = 0
        self.broken = False  # nothing more is read
        self.ending = False  # closed after the answer
        self.lingers = False  # answered, and closed once the client has heard it
        self.paused = False  # the client does not take what is written
        self.until = time.monotonic() + patience

    # -- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.state.connections.add(self)
        if len(self.state.connections) > self.front.most_connections + _TOLD:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state.connections.discard(self)
        self.broken = True
        if self.cancel is not None:
            self.cancel()
        for request in (self.reading, self.current, *self.pending):
            self._release(request)
        if self.current is not None:
            self.front.handling -= 1
        self.reading = self.current = None
        self.pending.clear()

    def eof_received(self) -> bool:
        """A client may close its side and wait for answers."""
        self.ending = True
        if self.lingers:
            return False
        if self.reading is not None and not self.broken:
            self._break(Refused(400, "the request ends before its end"))
            self._next()
        return self.current is not None or bool(self.pending)

    def pause_writing(self) -> None:
        self.paused = True
        self.until = time.monotonic() + self.patience

    def resume_writing(self) -> None:
        self.paused = False
        self._next()

    def data_received(self, data: bytes) -> None:
        if self.broken:
            return
        if self.reading is None:
            self.until = time.monotonic() + self.patience
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Refused):
                raise
            self._break(cause)
        except httptools.HttpParserError as error:
            self._break(Refused(400, f"this is no request of HTTP/1.1: {error}"))
        else:
            if self.reading is not None and not self.most_body:
                self.head_size += len(data)
                if self.head_size > _MOST_READ:
                    self._break(Refused(431, "the head of the request is too long"))
        self._next()

    def _feed(self, data: bytes) -> None:
        """Who would rather speak another protocol (clients of HTTP/2 ask so at first) is answered
        in this one. httptools takes such a request for one without a body; so it is read again,
        without that wish."""
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as upgrade:
                assert self.reading is not None
                data = _without_upgrade(self.reading) + data[upgrade.args[0] :]

    # -- what httptools calls ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.reading = HTTPRequest(b"")
        self.head_size = self.most_body = 0

    def on_url(self, url: bytes) -> None:
        assert self.reading is not None
        self.reading.target += url
        if len(self.reading.target) > _MOST_HEAD:
            raise Refused(414, "the address is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self.reading
        assert request is not None
        if self.most_body:
            raise Refused(400, "a trailer")
        name = name.lower()
        if name in request.headers:
            if name in (b"host", b"authorization", b"inference-header-content-length"):
                raise Refused(400, f"header {shown(name.decode('latin-1'))} stands there twice")
            value = request.headers[name] + b", " + value
        elif len(request.headers) >= _MOST_HEADERS:
            raise Refused(431, "too many headers")
        request.headers[name] = value

    def on_headers_complete(self) -> None:
        request, parser = self.reading, self.parser
        assert request is not None
        request.method, request.version = parser.get_method(), parser.get_http_version()
        if request.version not in ("1.0", "1.1"):
            raise Refused(400, "this server speaks HTTP/1.1 and HTTP/1.0")
        if request.method == b"CONNECT":
            raise Refused(405, "CONNECT: this server is no proxy")
        if request.headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise Refused(501, "transfer-encoding: chunked is all that is understood")
        self._see_host(request)
        if parser.should_upgrade():
            return  # see _feed
        request.keep_alive = parser.should_keep_alive()
        size = len(request.target)
        size += sum(map(len, request.headers)) + sum(map(len, request.headers.values()))
        if size > _MOST_HEAD:
            raise Refused(431, f"a head of {size} bytes; the limit is {_MOST_HEAD}")
        self.most_body = 1 + self.front.admit(request, len(self.state.connections))
        length = request.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            raise Refused(400, "content-length: a number is needed")
        self._see_length(int(length))
        self.front.room(int(length))
        asks = request.headers.get(b"expect", b"").lower() == b"100-continue"
        if asks and not self.pending and self.current is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _see_host(self, request: HTTPRequest) -> None:
        """A target may name the server itself (RFC 9112, 3.2.2), which then stands for ``Host``."""
        if request.version == "1.1" and b"host" not in request.headers:
            raise Refused(400, "a request of HTTP/1.1 needs a header Host")
        scheme, found, rest = request.target.partition(b"://")
        if found and scheme.lower() in (b"http", b"https"):
            host, _, path = rest.partition(b"/")
            request.headers[b"host"], request.target = host, b"/" + path

    def on_body(self, part: bytes) -> None:
        request = self.reading
        assert request is not None
        self._see_length(request.held + len(part))
        self.front.room(len(part))
        request.held += len(part)
        self.front.held += len(part)
        request.parts.append(part)

    def _see_length(self, size: int) -> None:
        if size >= self.most_body:
            raise Refused(413, f"a body of more than {self.most_body - 1} bytes")

    def on_message_complete(self) -> None:
        request = self.reading
        assert request is not None
        if self.parser.should_upgrade():
            return
        request.body = request.parts[0] if len(request.parts) == 1 else b"".join(request.parts)
        request.parts = []
        self.pending.append(request)
        self.reading = None
        self.head_size = self.most_body = 0

    # -- answers -----------------------------------------------------------------------------------

    def _break(self, refused: Refused) -> None:
        """Read no further; answer what came before, then this."""
        self._release(self.reading)
        self.reading, self.broken = None, True
        self.pending.append(HTTPRequest(b"", refused=refused, keep_alive=False))

    def _next(self) -> None:
        """Begin with the next request, if there is one and nothing is in its way."""
        while self.pending and self.current is None and not self.paused and not self.lingers:
            request = self.current = self.pending.popleft()
            self.front.handling += 1
            self.ending = self.ending or not request.keep_alive or self.front.draining
            if request.refused is not None:
                self.front.refuse(self, request.refused)
            elif not self.front.handle(self, request):
                self._run_app(request)
        if self.pending and not self.lingers:
            self.transport.pause_reading()
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def respond(
        self,
        status: int,
        parts: Iterable[bytes],
        kind: bytes = JSON,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """The answer to the current request."""
        request = self.current
        if request is None or self.transport.is_closing():
            return
        parts = list(parts)
        lines = [_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, b"content-type: ", kind]
        lines.append(b"\r\ncontent-length: %d\r\n" % sum(map(len, parts)))
        for name, value in (*self.state.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        if self.ending or self.front.draining:
            self.ending = True
            lines.append(b"connection: close\r\n")
        elif request.version == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        if request.method != b"HEAD":
            lines += parts
        self.transport.write(b"".join(lines))
        self._answered(request)

    def _answered(self, request: HTTPRequest) -> None:
        self._release(request)
        self.current = self.cancel = None
        self.front.handling -= 1
        self.state.total_requests += 1
        if self.ending:
            self._leave()
            return
        self.until = time.monotonic() + self.idle
        if self.pending:
            self.loop.call_soon(self._next)

    def _leave(self) -> None:
        """Close; where the client may still be sending, only once it has heard the answer."""
        for request in self.pending:
            self._release(request)
        self.pending.clear()
        unread, self.broken = self.broken, True
        if unread and self.transport.can_write_eof():
            self.lingers, self.until = True, time.monotonic() + _LINGER
            self.transport.write_eof()
            self.transport.resume_reading()
        else:
            self.transport.close()

    def _release(self, request: HTTPRequest | None) -> None:
        if request is not None:
            self.front.held -= request.held
            request.held, request.body, request.parts = 0, b"", []

    # -- time, and the end of the server -----------------------------------------------------------

    def look(self, now: float) -> None:
        """Close what has taken too long: an idle client, one that does not send the whole of its
        request, or does not take its answer."""
        if now < self.until or (self.current is not None and not self.paused):
            return
        if self.reading is not None and not self.paused and not self.broken:
            self._break(Refused(408, "the request took too long to come"))
            self._next()
        else:
            self.transport.abort() if self.paused else self.transport.close()

    def shutdown(self) -> None:
        """The server ends: so does the connection, once it has answered what was asked."""
        self.ending = True
        if self.current is None and not self.pending and self.reading is None:
            self.transport.close()

    # -- ASGI --------------------------------------------------------------------------------------

    def _run_app(self, request: HTTPRequest) -> None:
        task = self.loop.create_task(self._asgi(request))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    async def _asgi(self, request: HTTPRequest) -> None:
        path, _, query = request.target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.version, "method": request.method.decode("ascii"),
            "scheme": "http", "path": _unquoted(path), "raw_path": path, "query_string": query,
            "root_path": "", "headers": list(request.headers.items()),
            "server": self.transport.get_extra_info("sockname"),
            "client": self.transport.get_extra_info("peername"), "state": dict(self.app_state),
        }  # fmt: skip
        answer = _Answer(request.body)
        try:
            await self.config.loaded_app(scope, answer.receive, answer.send)
        except Exception as error:  # ours: the log has all of it
            journal.fail(error)
            self.front.refuse(self, Refused(500, f"{type(error).__name__} in the server"))
            return
        kinds = [v for k, v in answer.headers if k == b"content-type"]
        headers = [h for h in answer.headers if h[0] not in (b"content-type", b"content-length")]
        self.respond(answer.status, answer.parts, kinds[0] if kinds else b"text/plain", headers)


class _Answer:
    """What an application of ASGI says to one request."""

    def __init__(self, body: bytes) -> None:
        self.body, self.status = body, 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(k).lower(), bytes(v)) for k, v in message.get("headers", ())]
        else:
            self.parts.append(bytes(message.get("body", b"")))


def _without_upgrade(request: HTTPRequest) -> bytes:
    """The head of a request that asked for another protocol, as one that does not."""
    words = request.headers.get(b"connection", b"").split(b",")
    kept = b",".join(w for w in words if w.strip().lower() != b"upgrade")
    headers = {**request.headers, b"connection": kept or b"keep-alive"}
    del headers[b"upgrade"]
    lines = [b"%s: %s\r\n" % pair for pair in headers.items()]
    first = b"%s %s HTTP/%s\r\n" % (request.method, request.target, request.version.encode())
    return first + b"".join(lines) + b"\r\n"


def _unquoted(path: bytes) -> str:
    return parse.unquote_to_bytes(path).decode("utf-8", "replace")
