"""``static``: the nodes' places are told to each of them; they meet at a store on the first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ....distributed import PrefixStore, TCPStore
from .handlers import RendezvousHandler, RendezvousInfo, RendezvousParameters, RendezvousStoreInfo

_SECONDS = 600


class StaticTCPRendezvous(RendezvousHandler):
    """Node ``rank`` of ``world_size``, at ``master_addr``:``master_port``; ``timeout`` in
    seconds."""

    def __init__(
        self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str,
        timeout: float,
    ) -> None:  # fmt: skip
        self.master_addr, self.master_port = master_addr, master_port
        self.rank, self.world_size, self.run_id = rank, world_size, run_id
        self.timeout = timedelta(seconds=timeout)
        self._store: Any = None

    def get_backend(self) -> str:
        return "static"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        where = RendezvousStoreInfo(self.master_addr, self.master_port)
        if self._store is None:
            self._store = TCPStore(
                self.master_addr, self.master_port, None, self.rank == 0, self.timeout
            )
        store = PrefixStore(self.run_id, self._store)
        return RendezvousInfo(store, self.rank, self.world_size, where)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """There is nothing to close."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        store, self._store = self._store, None
        if store is not None:
            store.close()
        return True


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Raises ``ValueError`` where the parameters lack the place of the node or the endpoint."""
    if "rank" not in params.config:
        raise ValueError(
            "rank is absent in RendezvousParameters; give the place of this node, rank=0 for the "
            "first one"
        )
    if not params.endpoint:
        raise ValueError("endpoint is absent in RendezvousParameters; give host:port")
    host, _, port = params.endpoint.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"endpoint {params.endpoint!r}: host:port is needed (endpoint port)")
    place = int(params.config["rank"])
    timeout = float(params.config.get("timeout", _SECONDS))
    size, run_id = params.max_nodes, params.run_id
    return StaticTCPRendezvous(host.strip("[]"), int(port), place, size, run_id, timeout)
