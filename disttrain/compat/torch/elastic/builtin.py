"""The registry of rendezvous backends, with those of the launcher."""

from __future__ import annotations

from ....context import current
from .handlers import (
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
)
from .static import create_rdzv_handler

_SLOT = "compat.torch.elastic.handlers"


class LauncherRendezvous(RendezvousHandler):
    """A rendezvous that the launcher's agents hold among themselves when the job is started."""

    def __init__(self, params: RendezvousParameters) -> None:
        self.params = params
        self._closed = False

    def get_backend(self) -> str:
        return self.params.backend

    def next_rendezvous(self) -> RendezvousInfo:
        raise RuntimeError(
            f"rendezvous {self.params.backend!r}: the launcher holds it when the job is started "
            "(elastic_launch, torchrun); nodes that are to meet without one take static, or a "
            "handler of their own"
        )

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.params.run_id

    def shutdown(self) -> bool:
        self.set_closed()
        return True


def _standard() -> RendezvousHandlerRegistry:
    registry = RendezvousHandlerRegistry()
    registry.register("static", create_rdzv_handler)
    for name in ("c10d", "etcd", "etcd-v2"):
        registry.register(name, LauncherRendezvous)
    return registry


def handler_registry() -> RendezvousHandlerRegistry:
    """This rank's registry."""
    return current().slot(_SLOT, _standard)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of the backend that ``params`` name."""
    return handler_registry().create_handler(params)


def __getattr__(name: str) -> RendezvousHandlerRegistry:
    if name == "rendezvous_handler_registry":
        return handler_registry()
    raise AttributeError(f"{__name__}.{name}")
