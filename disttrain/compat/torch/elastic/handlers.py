"""``torch.distributed.elastic.rendezvous``: what a rendezvous is told, gives and may be.

Pure: who meets where is the launcher's (or a handler's of the program's own).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ....errors import DisttrainError

_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


class RendezvousError(DisttrainError):
    """Nodes could not meet."""


class RendezvousClosedError(RendezvousError):
    """The rendezvous is over."""


class RendezvousTimeoutError(RendezvousError):
    """Too few nodes have come in time."""


class RendezvousConnectionError(RendezvousError):
    """What holds the state of the rendezvous cannot be reached."""


class RendezvousStateError(RendezvousError):
    """The state of the rendezvous is damaged."""


class RendezvousGracefulExitError(RendezvousError):
    """This node is not needed any more."""


class RendezvousParameters:
    """What a rendezvous is made of: between ``min_nodes`` and ``max_nodes`` nodes of the job
    ``run_id`` meet at ``endpoint``; ``kwargs`` are the backend's own. Raises ``ValueError``."""

    def __init__(
        self, backend: str, endpoint: str, run_id: str, min_nodes: int, max_nodes: int,
        local_addr: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(
                f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero."
            )
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or "
                f"equal to the minimum number of rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes = min_nodes, max_nodes
        self.local_addr, self.config = local_addr, kwargs

    def get(self, key: str, default: object = None) -> Any:
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """An option as a truth value; ``ValueError`` where it is none."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).lower() if isinstance(value, (int, str)) else ""
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError(
            f"The rendezvous configuration option '{key}' does not represent a valid boolean value."
        )

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """An option as a number; ``ValueError`` where it is none."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer "
                "value."
            ) from None


@dataclass
class RendezvousStoreInfo:
    """Where the ranks of a job meet."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int


@dataclass(frozen=True)
class RendezvousInfo:
    """What a node is told: its place, of how many, and the store through which they meet."""

    store: Any
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo | None = None


class RendezvousHandler(ABC):
    """A way for nodes to meet."""

    @abstractmethod
    def get_backend(self) -> str:
        """Its name."""

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks meet at the store that the nodes have met at."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until the nodes have met."""

    @abstractmethod
    def is_closed(self) -> bool: ...

    @abstractmethod
    def set_closed(self) -> None: ...

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many nodes want to join."""

    @abstractmethod
    def get_run_id(self) -> str: ...

    @abstractmethod
    def shutdown(self) -> bool: ...


Creator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Creators of handlers by the names of backends."""

    def __init__(self) -> None:
        self._creators: dict[str, Creator] = {}

    def register(self, backend: str, creator: Creator) -> None:
        """Raises ``ValueError`` for a name that another creator has."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        current = self._creators.get(backend, creator)
        if current != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it "
                f"is already registered with '{current}'."
            )
        self._creators[backend] = creator

    def __contains__(self, backend: str) -> bool:
        return backend in self._creators

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """Raises ``ValueError`` for an unknown backend, ``RuntimeError`` for a handler of another
        one."""
        creator = self._creators.get(params.backend)
        if creator is None:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to "
                "call `register`?"
            )
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested "
                f"backend '{params.backend}'."
            )
        return handler
