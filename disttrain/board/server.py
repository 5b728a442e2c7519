"""Answers a browser on this machine: the page, and what it asks for as JSON. Reads only.

Who asks must know the token that stands in the address which ``serve`` prints (it becomes a cookie
at the first visit), and must ask for this machine by a name of the loopback address, so that no
other user, and no page of another site in the same browser, reads runs.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from . import page, recordings
from .ranks import Watcher
from .runs import Run, find_runs, read_records, read_report, shown
from .series import curves, is_counter, is_number, thinned

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import (
        FileResponse,
        HTMLResponse,
        PlainTextResponse,
        RedirectResponse,
        Response,
    )
    from starlette.routing import Route
except ImportError as error:
    raise ConfigError(
        f"board: {error.name} is missing, which answers the browser: pip install 'disttrain[board]'"
    ) from None

HOSTS = ["127.0.0.1", "localhost", "[::1]", "::1"]
_COOKIE = "disttrain-board"
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_GUARDS = {
    "Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
}  # fmt: skip


class Board:
    """What is asked of the runs below ``root``."""

    def __init__(self, root: str | Path, token: str | None = None) -> None:
        find_runs(root)  # whether there is such a directory
        self.root, self.token = Path(root), token or secrets.token_urlsafe(24)
        self._watchers: dict[str, Watcher] = {}
        self._lock = threading.Lock()

    def app(self) -> Starlette:
        """The application; uvicorn runs it, so may any ASGI server."""
        routes = [
            Route("/", self._page),
            Route("/plotly.min.js", self._guarded(self._library)),
            Route("/api/runs", self._guarded(self._runs)),
            Route("/api/metrics", self._guarded(self._metrics)),
            Route("/api/ranks", self._guarded(self._ranks)),
            Route("/diff", self._guarded(self._diff)),
        ]
        return Starlette(
            routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)]
        )

    def _page(self, request: Request) -> Response:
        given = request.query_params.get("token", "")
        if given:
            if not self._is_token(given):
                return _refused()
            answer = RedirectResponse("/", status_code=303, headers=_GUARDS)
            answer.set_cookie(self._cookie(request), self.token, httponly=True, samesite="strict")
            return answer
        if not self._knows(request):
            return _refused()
        return HTMLResponse(page.document(), headers=_GUARDS)

    def _cookie(self, request: Request) -> str:
        """Of this port: cookies do not know ports, and there may be several boards."""
        return f"{_COOKIE}-{request.url.port or 80}"

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _knows(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        return self._is_token(request.cookies.get(self._cookie(request), bearer))

    def _guarded(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def guard(request: Request) -> Response:
            return answer(request) if self._knows(request) else _refused()

        return guard

    def _library(self, request: Request) -> Response:
        guards = {**_GUARDS, "Cache-Control": "private, max-age=86400"}
        return FileResponse(page.plotting_library(), media_type="text/javascript", headers=guards)

    def _runs(self, request: Request) -> Response:
        return _json({"root": shown(self.root), "runs": [run.about() for run in self.runs()]})

    def _metrics(self, request: Request) -> Response:
        run = self._run(request)
        at = request.query_params.get("at", "0")
        if run is None or not (at.isascii() and at.isdigit() and len(at) < 19):
            return _json({"error": "no such run, or no such place"}, 404)
        return _json(metrics(run, int(at)))

    def _ranks(self, request: Request) -> Response:
        run = self._run(request)
        return _json({"error": "no such run"}, 404) if run is None else _json(self.ranks(run))

    def _diff(self, request: Request) -> Response:
        asked = request.query_params
        text = recordings.document(self.root, asked.get("a", ""), asked.get("b", ""))
        return HTMLResponse(text, headers=_GUARDS)

    def _run(self, request: Request) -> Run | None:
        """One of those that are there: a name is never made a path."""
        name = request.query_params.get("run", "")
        return next((run for run in self.runs() if run.name == name), None)

    def runs(self) -> list[Run]:
        try:
            return find_runs(self.root)
        except ConfigError:
            return []  # the directory has gone; it may come back

    def ranks(self, run: Run) -> dict[str, Any]:
        """What its ranks do, and how they have ended."""
        with self._lock:
            seen = self._watchers.setdefault(run.name, Watcher()).look(run)
        return {**seen, "report": read_report(run)}


def metrics(run: Run, at: int) -> dict[str, Any]:
    """The curves of what was written after byte ``at``, thinned where that is everything, and then
    without those that merely count, whose names are told."""
    records, end = read_records(run, at)
    whole = at == 0 or end < at
    found = curves(records)
    counters = [name for name, curve in found.items() if is_counter(curve)] if whole else []
    if whole:
        found = {name: thinned(c) for name, c in found.items() if name not in counters}
    resumes = [r["step"] for r in records if r.get("kind") == "resume" and is_number(r.get("step"))]
    return {"at": end, "whole": whole, "curves": found, "counters": counters, "resumes": resumes}


def snapshot(board: Board) -> dict[str, Any]:
    """All that the page shows, for one that asks nobody."""
    runs = board.runs()
    return {
        "root": shown(board.root),
        "runs": [run.about() for run in runs],
        "metrics": {run.name: metrics(run, 0) for run in runs},
        "ranks": {run.name: board.ranks(run) for run in runs},
    }


def listen(host: str, port: int) -> socket.socket:
    """A socket on the loopback address; another port where ``port`` is taken. Raises
    ``ConfigError``."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(
            f"board: --host {host}: it serves this machine alone (127.0.0.1 or ::1); from "
            f"elsewhere reach it through ssh -L {port}:127.0.0.1:{port}"
        )
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    for number in (port, 0):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            listener.close()
            last = error
        else:
            return listener
    raise ConfigError(f"board: port {port} of {host} cannot be had: {last}")


def serve(board: Board, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer until Ctrl-C or another signal ends it. ``ready`` is told the address to open."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    ready(f"http://{shown}:{port}/?token={board.token}")
    config = uvicorn.Config(
        board.app(), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=1, limit_concurrency=64,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, once it has closed
        uvicorn.Server(config).run(sockets=[listener])


def _json(content: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # ASCII: names may be odd
    return Response(text, status, headers=_GUARDS, media_type="application/json")


def _refused() -> Response:
    text = "This page needs the address that `disttrain board` has printed, with its token.\n"
    return PlainTextResponse(text, 403, headers=_GUARDS)
