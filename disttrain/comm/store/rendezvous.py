"""From a URL to the store through which ranks meet."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit, urlunsplit

import numpy as np

from ... import context, settings
from ...errors import ConfigError, StoreError, StoreRefused, StoreUnreached, WaitTimeout
from ...trace import logger
from ..job.worker_env import WorkerEnv, read_worker_env
from . import FileStore, PrefixStore, Store, TCPStore
from .base import seconds
from .connecting import Alone, who_is_alone
from .ports import PortTaken, known
from .token_file import read_token_file

_TAKEN_SECONDS = 0.5  # as long a port may be taken by a store that is being closed
_PATIENCE = 0.1
_TELL_SECONDS = 5.0  # after which a rank says that it waits for the store
_GRACE = 30.0  # ... and gives up, where rank 0 has gone alone: it may come once more
_SCHEMES = ("env", "tcp", "file")
_HANDLERS = "comm.rendezvous"  # of a rank: the ways to meet that its program has added
_HOSTED = "comm.stores"  # of a rank: the stores that it hosts, by port


class _Hosted(TCPStore):
    """A store in the process that hosts it. Who else meets at the same port uses the same one, and
    the last of them to close closes it."""

    def __init__(
        self,
        beside: list[_Hosted],
        host: str,
        port: int,
        world_size: int | None,
        timeout: float,
        token: bytes | None,
        wait: bool,
        epoch: int,
    ) -> None:
        self.beside = beside
        is_master = not beside
        super().__init__(host, port, world_size, is_master, timeout, wait, token=token, epoch=epoch)

    def close(self) -> None:
        if self in self.beside:
            self.beside.remove(self)
        if self.beside and self._server is not None:
            self.beside[0]._server, self._server = self._server, None
        super().close()


def _host(
    host: str,
    port: int,
    world_size: int | None,
    timeout: float,
    token: bytes | None,
    wait: bool,
    epoch: int,
) -> Store:
    """The store at ``port``, made where this process does not host it yet."""
    beside = context.current().slot(_HOSTED, dict[int, list[_Hosted]]).setdefault(port, [])
    beside[:] = [store for store in beside if store._owner == os.getpid()]
    deadline = context.now() + min(_TAKEN_SECONDS, timeout)
    while True:
        try:
            store = _Hosted(beside, host, port, world_size, timeout, token, wait, epoch)
        except PortTaken:
            if context.now() > deadline:
                raise
            # A store of another process: one that closes just now, or that ranks meet at.
            try:
                return TCPStore(host, port, None, False, _PATIENCE, token=token, epoch=epoch)
            except (StoreError, WaitTimeout):
                continue
        if port:
            beside.append(store)
        return store


def store_for(url: str, place: WorkerEnv, timeout: float, wait: bool = True) -> Store:
    """The store that ``init_method`` names: env://, tcp://host:port or file:///path. ``wait``: who
    hosts it waits for all others.

    With a token file a store at host:port is there for other hosts, too; without one, for this
    user's processes on this host only. At env:// ranks of one generation meet: those of another one
    are refused.
    """
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
    token = None if place.token_file is None else read_token_file(place.token_file)
    if token is None:
        known(host, port)
    size = place.world_size if place.world_size > 0 else None
    epoch = place.generation if parts.scheme == "env" else 0
    if place.rank == 0:
        return _host(host, port, size, timeout, token, wait, epoch)
    waiting = _Waiting(place, f"{host}:{port}", port, timeout)
    try:
        return TCPStore(
            host, port, size, False, timeout=timeout, token=token, epoch=epoch, waiting=waiting
        )
    except StoreRefused:
        raise
    except StoreUnreached as error:
        raise StoreUnreached(f"{waiting.me}: {error}. {waiting.cause()}") from None


class _Waiting:
    """What a rank says that waits for rank 0 to open the store: soon that it does, once; and why
    it goes no further, where rank 0 is known to have begun without it."""

    def __init__(self, place: WorkerEnv, where: str, port: int, timeout: float) -> None:
        self.me = f"init_process_group: rank {place.rank} of {place.world_size}"
        self._where, self._port = where, port
        self._begun = time.monotonic()
        self._next, self._end = _TELL_SECONDS, max(_TELL_SECONDS, min(_GRACE, timeout / 2))
        self._alone: int | None = None

    def __call__(self, what: str) -> None:
        waited = time.monotonic() - self._begun
        if waited < self._next:
            return
        if self._next == _TELL_SECONDS:
            logger("disttrain.store").warning("%s waits for %s. %s", self.me, what, self.cause())
            self._alone, self._next = who_is_alone(self._port), self._end
            return
        self._next = math.inf
        if self._alone and who_is_alone(self._port) == self._alone:
            raise ConfigError(f"{self.me} has waited {waited:.0f} s in vain: {self.cause()}")

    def cause(self) -> str:
        """Why nobody may have let it in."""
        found = who_is_alone(self._port)
        if found:
            return (
                f"Process {socket.gethostname()}:{found} has begun with WORLD_SIZE=1 and the port "
                f"of {self._where}, so it goes alone and opens no store. Give every process the "
                "same world size (WORLD_SIZE), and another job another port (MASTER_PORT)"
            )
        return (
            f"Rank 0 opens the store at {self._where}, and has not: see whether it was started, "
            "and with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE (rank 0 may have been "
            "started with another WORLD_SIZE: with 1 it goes alone)"
        )


def say_alone(init_method: str | None) -> Alone | None:
    """A world of one has begun: where its program names a port, who waits there is to know."""
    port = place_of(init_method, None)
    return Alone(int(port)) if port.isdigit() and int(port) else None


def place_of(init_method: str | None, store: object) -> str:
    """Where ranks meet, spelt alike on all of them: the store's port, or its file."""
    if store is not None:
        prefixes = []
        while isinstance(store, PrefixStore):
            prefixes.append(str(store.prefix))
            store = store.underlying_store
        return "/".join([str(getattr(store, "port", getattr(store, "path", ""))), *prefixes])
    if init_method in (None, "", "env://"):
        return settings.MASTER_PORT.text()
    parts = urlsplit(init_method)
    return parts.netloc.rpartition(":")[2] if parts.scheme == "tcp" else parts.path


Handler = Callable[..., Iterator[tuple[Store, int, int]]]


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let ``handler(url, timeout=...)`` say where ranks meet whose URL begins with ``scheme://``: a
    generator that yields (store, rank, world size)."""
    handlers = _handlers()
    if scheme in handlers or scheme in _SCHEMES:
        raise StoreError(f"Rendezvous handler for {scheme}:// already registered")
    handlers[scheme] = handler


def _handlers() -> dict[str, Handler]:
    return context.current().slot(_HANDLERS, dict[str, Handler])


def told_by_url(url: str, rank: int, size: int, timeout: float) -> tuple[Store | None, int, int]:
    """What a URL says of who this is, where the program does not: the rank and the world size of
    its query, or all that a handler of the program's own gives."""
    parts = urlsplit(url)
    if parts.scheme in _handlers():
        return next(iter(rendezvous(url, rank, size, timeout=timedelta(seconds=timeout))))
    asked = parse_qs(parts.query)
    rank = int(asked["rank"][0]) if rank < 0 and "rank" in asked else rank
    size = int(asked["world_size"][0]) if size < 0 and "world_size" in asked else size
    return None, rank, size


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, **kwargs: object
) -> Iterator[tuple[Store, int, int]]:
    """Where a URL says that ranks meet: (store, rank, world size), as an iterator.

    "env://", "tcp://host:port" and "file:///path" take rank and size from the arguments, the query
    ("?rank=0&world_size=2") or, for "env://", the environment. ``timeout``: of the store. Raises
    ``ConfigError``, ``StoreError`` for a scheme that nobody handles.
    """
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, (int, np.integer)):
            raise StoreError(f"rendezvous: `{name}` must be an integer. {value!r} given")
    if not isinstance(url, str):
        raise StoreError(f"rendezvous: `url` must be a string. {url!r} given")
    parts = urlsplit(url)
    handler = _handlers().get(parts.scheme)
    if handler is not None:
        known = {"rank": rank, "world_size": world_size}
        more = "&".join(f"{name}={value}" for name, value in known.items() if value != -1)
        query = "&".join(filter(None, (parts.query, more)))
        return handler(urlunsplit(parts._replace(query=query)), **kwargs)
    if parts.scheme not in _SCHEMES:
        raise StoreError(
            f"No rendezvous handler for {parts.scheme}://; use env, tcp or file, or "
            "register_rendezvous_handler"
        )
    return _meeting(url, parts, rank, world_size, kwargs.get("timeout"))


def _meeting(
    url: str, parts: SplitResult, rank: int, world_size: int, timeout: Any
) -> Iterator[tuple[Store, int, int]]:
    asked = parse_qs(parts.query)
    rank = int(asked["rank"][0]) if "rank" in asked else rank
    size = int(asked["world_size"][0]) if "world_size" in asked else world_size
    if parts.scheme == "file" and not parts.path:
        raise ConfigError(f"rendezvous({url!r}): path missing")
    if parts.scheme == "tcp" and parts.port is None:
        raise ConfigError(f"rendezvous({url!r}): port number missing")
    if parts.scheme != "env" and (rank < 0 or size < 0):
        what = "rank" if rank < 0 else "size"
        raise ConfigError(f"rendezvous({url!r}): {what} parameter missing")
    place = read_worker_env(None, rank, size)
    store = store_for(url, place, seconds(timeout))
    yield store, place.rank, place.world_size
    raise ConfigError(f"rendezvous({url!r}): ranks meet once; a second meeting was asked for")
