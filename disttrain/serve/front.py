"""The front: one process that speaks HTTP, forms batches, and gives them to workers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hmac
import importlib
import logging
import math
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

from .. import lifetime
from ..errors import ConfigError
from . import coding, documents, journal
from .app import application
from .measures import Measures
from .messages import Channel
from .options import LOOPBACK, Options
from .pool import Pool, Request, Served
from .protocol import Connection, HTTPRequest
from .refusal import Refused, shown

try:
    import uvicorn
except ImportError as error:
    raise ConfigError(
        f"serve: {error.name} is missing, which answers clients: pip install 'disttrain[serve]'"
    ) from None

_INFER = re.compile(rb"/v2/models/([\w.\-]+)(?:/versions/([\w.\-]+))?/infer")
_OPEN = (b"/v2/health/live", b"/v2/health/ready")  # for probes, which have no token
_LOOK = 0.5
_LET_IN = 0.1
_HEAD = b"inference-header-content-length"
_OWN_FILES, _FILES_OF_WORKER = 96, 16  # descriptors that are no client's
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server(uvicorn.Server):
    """Signals are the supervisor's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Front:
    """See ``protocol.Front`` and ``app.Front``."""

    def __init__(self, options: Options, supervisor: Channel, version: str) -> None:
        self.options, self.version = options, version
        self.platform = "onnx_onnxv1" if options.onnx else "disttrain_program"
        self.measures = Measures()
        self.limits = coding.Limits(options.json, options.depth)
        self.held = self.handling = 0
        self.draining = False
        self.most_connections = _room_for(options)
        self._exhausted = 0.0  # when that was told last
        self._loop = asyncio.get_running_loop()
        self.pool = Pool(options, supervisor, self.measures, self._all_wait)
        self.channel = supervisor
        make = functools.partial(Connection, self, options.patience, options.idle)
        config = uvicorn.Config(
            application(self), http=make, ws="none", lifespan="off", interface="asgi3",  # type: ignore[arg-type]
            proxy_headers=False, server_header=False, log_config=None, access_log=False,
            timeout_graceful_shutdown=max(1, math.ceil(options.grace)), backlog=2048,
            ssl_certfile=options.certificate or None, ssl_keyfile=options.key or None,
        )  # fmt: skip
        self.server = Server(config)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.server.server_state.connections)

    def _all_wait(self) -> bool:
        """Does every client wait for an answer? Then no further request comes soon."""
        return self.handling >= self.connections

    async def run(self, listener: socket.socket) -> None:
        """Until the supervisor says that it is the end."""
        self.channel.sock.setblocking(False)
        self._loop.set_exception_handler(self._bug)
        self._loop.add_reader(self.channel.sock, self._hear)
        self._look()
        await self.server.serve(sockets=[listener])

    def _hear(self) -> None:
        try:
            message, fds = self.channel.receive_with_fds()
        except BlockingIOError:
            return
        if message is None or "stop" in message:
            self._loop.remove_reader(self.channel.sock)
            self.draining = True
            self.pool.stop()
            # Who has been let in by the kernel is answered, too.
            self._loop.call_later(_LET_IN, setattr, self.server, "should_exit", True)
        elif "generation" in message and "worker" not in message:
            self.pool.begin(message["generation"], message["covers"])
        else:
            self.pool.add(message, fds)

    def _look(self) -> None:
        now = time.monotonic()
        for connection in list(self.server.server_state.connections):
            connection.look(now)  # type: ignore[union-attr]
        self._loop.call_later(_LOOK, self._look)

    def _bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        now = time.monotonic()
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            if not self.draining or "socket" not in context:  # asyncio would listen once more
                told = isinstance(error, BaseException)
                journal.fail(error if told else RuntimeError(context["message"]))  # type: ignore[arg-type]
        elif now > self._exhausted + 1.0:  # asyncio says so for each place in the backlog
            self._exhausted = now
            journal.tell("exhausted", "error", error=error.strerror, connections=self.connections)

    # -- who may ask, and how much -----------------------------------------------------------------

    def admit(self, request: HTTPRequest, connections: int) -> int:
        if connections > self.most_connections:
            raise Refused(503, "too many connections", 1)
        if self.options.local and not self.options.token:
            refused = _elsewhere(request.headers.get(b"host"), request.headers.get(b"origin"))
            if refused:
                raise Refused(403, refused)
        path = request.target.partition(b"?")[0]
        if self.options.token and path not in _OPEN:
            given = request.headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.options.token):
                raise Refused(401, "Authorization: Bearer and the server's token are needed")
        if request.headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "a body that is encoded (content-encoding)")
        return self.options.body if path.endswith(b"/infer") else 1 << 16

    def room(self, size: int) -> None:
        if self.held + size > self.options.held:
            raise Refused(429, "too many bytes of requests are here", self.pool.retry_after())

    # -- inference ---------------------------------------------------------------------------------

    def served(self, name: str, version: str | None) -> Served:
        """The model as it is served now. Raises ``Refused``."""
        current = self.pool.current
        if current is None:
            raise Refused(503, "the models are being loaded", 1)
        served = current.models.get(name)
        if served is None:
            raise Refused(404, f"there is no model {shown(name)}")
        if version is not None and version != served.version:
            raise Refused(404, f"{name} has no version {shown(version)}; it has {served.version}")
        return served

    def handle(self, connection: Connection, request: HTTPRequest) -> bool:
        found = _INFER.fullmatch(request.target.partition(b"?")[0])
        if found is None or request.method != b"POST":
            if found is None:
                return False
            self.refuse(connection, Refused(405, "an inference is asked for by POST"))
            return True
        name = found[1].decode("ascii", "replace")
        start = time.monotonic()
        try:
            version = found[2].decode("ascii", "replace") if found[2] else None
            served = self.served(name, version)
        except Refused as refused:
            self.refuse(connection, refused)
            return True
        try:
            head = request.headers.get(_HEAD)
            inference = coding.read(
                served.signature,
                request.body,
                None if head is None else head.decode("latin-1"),
                self.limits,
            )
            timeout = self._timeout(request, inference)
            done = functools.partial(self._done, connection, start)
            waiting = self.pool.submit(name, served, inference, done, timeout)
        except Refused as refused:
            self._refuse_inference(connection, name, start, refused)
            return True
        connection.cancel = functools.partial(setattr, waiting, "cancelled", True)
        return True

    def _timeout(self, request: HTTPRequest, inference: coding.Inference) -> float:
        """Seconds that the client gives it: a header, a parameter, or the server's own limit."""
        text = request.headers.get(b"x-request-timeout")
        if text is None:
            return min(inference.timeout or self.options.timeout, self.options.timeout)
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise Refused(
                400, f"X-Request-Timeout: {shown(text.decode('latin-1'))}; seconds are needed"
            )
        return min(seconds, self.options.timeout)

    def _done(self, connection: Connection, start: float, request: Request, outcome: Any) -> None:
        connection.cancel = None
        if isinstance(outcome, Refused):
            self._refuse_inference(connection, request.model, start, outcome)
            return
        served = request.served
        parts, head = coding.answer(
            request.model, served.version, served.signature, request.inference, outcome
        )
        if head:
            kind, more = b"application/octet-stream", [(_HEAD, b"%d" % head)]
            connection.respond(200, parts, kind, more)
        else:
            connection.respond(200, parts)
        self._note(connection, request.model, 200, start)

    def _refuse_inference(
        self, connection: Connection, name: str, start: float, refused: Refused
    ) -> None:
        self._answer_refused(connection, refused)
        self._note(connection, name, refused.status, start, str(refused))

    def refuse(self, connection: Connection, refused: Refused) -> None:
        self.measures.refused.add(labels=(str(refused.status),))
        self._answer_refused(connection, refused)

    def _answer_refused(self, connection: Connection, refused: Refused) -> None:
        headers = [(b"retry-after", b"%d" % refused.retry)] if refused.retry else []
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        connection.respond(
            refused.status, [documents.write({"error": str(refused)})], headers=headers
        )

    def _note(
        self, connection: Connection, name: str, status: int, start: float, text: str = ""
    ) -> None:
        seconds = time.monotonic() - start
        self.measures.requests.add(labels=(name, str(status)))
        self.measures.seconds.add(seconds, (name,))
        if self.options.log_requests:
            peer = connection.transport.get_extra_info("peername") or ("",)
            more = {"error": text} if text else {}
            ms = round(seconds * 1e3, 3)
            journal.tell("request", model=name, status=status, ms=ms, peer=peer[0], **more)


@functools.lru_cache(64)
def _elsewhere(given: bytes | None, origin: bytes | None) -> str:
    """Why a request is not for this machine, or "". No page of another site, in a browser of this
    machine, may ask: neither through a name that it lets mean this machine, nor directly."""
    host = (b"localhost" if given is None else given).decode("latin-1")
    if re.sub(r":\d*$", "", host).strip("[]").lower() not in LOOPBACK:
        return f"Host: {shown(host)}; this server is for this machine alone"
    if origin is not None and origin.partition(b"//")[2].decode("latin-1") != host:
        return "Origin: pages of other sites may not ask this server"
    return ""


def _room_for(options: Options) -> int:
    """How many connections there may be: as many as are asked for, where the system lets this
    process have so many files."""
    others = _OWN_FILES + _FILES_OF_WORKER * options.workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= others + options.connections:
        return options.connections
    wanted = others + options.connections
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == wanted:
        return options.connections
    found = max(soft - others, soft // 2)
    journal.tell("few_files", "warning", limit=soft, connections=found)
    return found


def main(options: Options, supervisor: Channel, listener: socket.socket, version: str) -> int:
    """The process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lifetime.rename("dt-serve-front")
    logging.basicConfig(handlers=[journal.Handler()], level=logging.WARNING, force=True)

    async def run() -> None:
        await Front(options, supervisor, version).run(listener)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())
    return 0


def _loop_factory() -> Any:
    """uvloop's where it is installed: half the time for a message."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
