"""What is asked rarely: health, metadata, metrics, loads. An application of Starlette's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..errors import ConfigError
from . import documents
from .measures import Measures, private_bytes
from .pool import Pool, Served
from .refusal import Refused, shown

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise ConfigError(
        f"serve: {error.name} is missing, which answers clients: pip install 'disttrain[serve]'"
    ) from None

EXTENSIONS = ["binary_tensor_data", "model_repository", "model_repository(load)"]


class Front(Protocol):
    """Whom the application asks."""

    pool: Pool
    measures: Measures
    version: str
    draining: bool
    held: int
    connections: int
    platform: str

    def served(self, name: str, version: str | None) -> Served:
        """The model, or ``Refused``."""


Answer = Callable[[Front, Request], Awaitable[Response]]


def application(front: Front) -> Starlette:
    """The application."""

    def bound(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await answer(front, request)

        return handle

    routes = [
        Route("/v2/health/live", bound(_live)),
        Route("/v2/health/ready", bound(_ready)),
        Route("/v2", bound(_server)),
        Route("/v2/models/{name}", bound(_model)),
        Route("/v2/models/{name}/ready", bound(_model_ready)),
        Route("/v2/models/{name}/versions/{version}", bound(_model)),
        Route("/v2/models/{name}/versions/{version}/ready", bound(_model_ready)),
        Route("/v2/repository/index", bound(_index), methods=["GET", "POST"]),
        Route("/v2/repository/models/{name}/load", bound(_load), methods=["POST"]),
        Route("/metrics", bound(_metrics)),
    ]
    handlers: Any = {Refused: _refused, 404: _no_place, 405: _no_method}
    made = Starlette(routes=routes, exception_handlers=handlers)
    made.router.redirect_slashes = False
    return made


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``content`` as JSON."""
    return Response(documents.write(content), status, headers, "application/json")


async def _live(front: Front, request: Request) -> Response:
    return answer({"live": True})


async def _ready(front: Front, request: Request) -> Response:
    ready = front.pool.is_ready() and not front.draining
    return answer({"ready": ready}, 200 if ready else 503)


async def _server(front: Front, request: Request) -> Response:
    return answer({"name": "disttrain", "version": front.version, "extensions": EXTENSIONS})


async def _model(front: Front, request: Request) -> Response:
    name = request.path_params["name"]
    served = front.served(name, request.path_params.get("version"))
    return answer(
        {
            "name": name,
            "versions": [served.version],
            "platform": front.platform,
            "inputs": [spec.metadata() for spec in served.signature.inputs],
            "outputs": [spec.metadata() for spec in served.signature.outputs],
        }
    )


async def _model_ready(front: Front, request: Request) -> Response:
    name = request.path_params["name"]
    front.served(name, request.path_params.get("version"))
    ready = front.pool.is_ready() and not front.draining
    return answer({"name": name, "ready": ready}, 200 if ready else 503)


async def _index(front: Front, request: Request) -> Response:
    current = front.pool.current
    models = current.models if current else {}
    state = "READY" if front.pool.is_ready() else "UNAVAILABLE"
    return answer(
        [{"name": n, "version": s.version, "state": state, "reason": ""} for n, s in models.items()]
    )


async def _load(front: Front, request: Request) -> Response:
    """All models are read again by new workers; those whose files are the same stay what they
    are."""
    name = request.path_params["name"]
    front.served(name, None)
    failure = await front.pool.ask_to_load()
    if failure is not None:
        raise Refused(400, f"{name} stays what it was: {failure}")
    return answer({"name": name, "version": front.served(name, None).version})


async def _metrics(front: Front, request: Request) -> Response:
    measures, pool = front.measures, front.pool
    measures.waiting.put(pool.waiting)
    measures.open.put(front.connections)
    measures.held.put(front.held)
    workers = [w for g in pool.generations.values() for w in g.workers]
    for state in ("starting", "ready", "busy"):
        measures.workers.put(sum(w.state == state for w in workers), (state,))
    measures.memory.values = {(str(w.pid),): private_bytes(w.pid) for w in workers}
    return PlainTextResponse(measures.text(), media_type="text/plain; version=0.0.4")


async def _refused(request: Request, refused: Refused) -> Response:
    retry = {"retry-after": str(refused.retry)} if refused.retry else None
    return answer({"error": str(refused)}, refused.status, retry)


async def _no_place(request: Request, error: Exception) -> Response:
    return answer({"error": f"there is nothing at {shown(request.url.path)}"}, 404)


async def _no_method(request: Request, error: Any) -> Response:
    text = f"{request.method} is not for {shown(request.url.path)}"
    return answer({"error": text}, 405, dict(error.headers or {}))
