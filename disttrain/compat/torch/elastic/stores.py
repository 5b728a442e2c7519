"""``torch.distributed.elastic.utils.distributed``: stores and ports for who starts jobs."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import timedelta

from ....distributed import DistNetworkError, DistStoreError, TCPStore
from ....errors import StoreError, WaitTimeout


def create_c10d_store(
    is_server: bool, server_addr: str, server_port: int = -1, world_size: int = 1,
    timeout: float = 600, wait_for_workers: bool = True, retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:  # fmt: skip
    """The store at ``server_addr``:``server_port``, hosted here where ``is_server`` (a port of -1:
    any free one, for one process). ``timeout`` in seconds. ``retries`` and ``use_libuv`` are
    PyTorch's: a port that is taken shows at once, and one server serves all.

    Raises ``ValueError``, ``DistStoreError`` (too few have come) or ``DistNetworkError`` (nobody
    is there).
    """
    if server_port == -1 and world_size > 1:
        raise ValueError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, "
            f"world_size={world_size}"
        )
    try:
        return TCPStore(
            server_addr, max(server_port, 0), world_size, is_server,
            timedelta(seconds=timeout), wait_for_workers=wait_for_workers,
        )  # fmt: skip
    except (StoreError, WaitTimeout) as error:
        raise (DistStoreError if is_server else DistNetworkError)(str(error)) from error


def get_socket_with_port() -> socket.socket:
    """A socket that listens at a free port of this machine."""
    return socket.create_server(("localhost", 0), backlog=0)


def get_free_port() -> int:
    """A port that is free now."""
    with closing(get_socket_with_port()) as listener:
        return listener.getsockname()[1]
