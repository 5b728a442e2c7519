"""From a URL to the store through which ranks meet."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from ..comm.store import FileStore, Store, TCPStore
from ..comm.worker_env import WorkerEnv
from ..errors import ConfigError


def store_for(url: str, place: WorkerEnv, timeout: float) -> Store:
    """The store that ``init_method`` names: env://, tcp://host:port or file:///path."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FileStore(parts.netloc + parts.path, place.world_size, timeout=timeout)
    if parts.scheme == "tcp":
        if parts.hostname is None or parts.port is None:
            raise ConfigError(f"init_method={url!r}: tcp://host:port is needed")
        host, port = parts.hostname, parts.port
        asked = parse_qs(parts.query)
        if "rank" in asked and int(asked["rank"][0]) != place.rank:
            raise ConfigError(f"init_method={url!r} names another rank than rank={place.rank}")
    elif parts.scheme == "env":
        if place.master_port is None:
            raise ConfigError(
                "init_process_group: MASTER_PORT is not set, so the ranks cannot meet; start the "
                "program with dtrun, or set MASTER_ADDR and MASTER_PORT on every rank"
            )
        host, port = place.master_addr, place.master_port
    else:
        raise ConfigError(f"init_method={url!r}: needed is env://, tcp://host:port or file:///path")
    return TCPStore(host, port, place.world_size, place.rank == 0, timeout=timeout)
