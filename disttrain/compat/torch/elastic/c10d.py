"""The state of a rendezvous in a store, with PyTorch's key and words."""

from __future__ import annotations

import binascii
import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from disttrain_launcher.node.mpi import is_here

from ....comm.store.ports import known
from ....comm.store.rendezvous import FileStore, Store, TCPStore
from .handlers import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousParameters,
    RendezvousStateError,
)

DEFAULT_PORT = 29400
_NOTHING = "via_shared_file_or_tcp_store"
_FAILED = "The connection to the C10d store has failed. See inner exception for details."


class C10dRendezvousBackend:
    """Keeps a state (bytes) under the name of the job ``run_id``; each state has a token, by which
    who sets the next one proves that it knows the last."""

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._store, self._key = store, "torch.rendezvous." + run_id
        if _call(store.compare_set, self._key, "", _NOTHING) == b"":
            raise RendezvousConnectionError("rendezvous: the store has not taken the first state")

    @property
    def name(self) -> str:
        return "c10d"

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and its token; None where there is none."""
        return self._decoded(_call(self._store.get, self._key))

    def set_state(self, state: bytes, token: object = None) -> tuple[bytes, Any, bool] | None:
        """Set the state if the last one is ``token``'s (none: if there is none). The state that
        there is now, its token, and whether it was set."""
        wanted = b64encode(state).decode()
        if token is None:
            token = _NOTHING.encode()
        elif not isinstance(token, bytes):
            found = self.get_state()
            return None if found is None else (*found, False)
        base64 = _call(self._store.compare_set, self._key, token.decode(), wanted)
        now = self._decoded(base64)
        return None if now is None else (*now, now[0] == state)

    def _decoded(self, base64: bytes) -> tuple[bytes, bytes] | None:
        if base64 == _NOTHING.encode():
            return None
        try:
            return b64decode(base64), base64
        except binascii.Error as error:
            raise RendezvousStateError(f"rendezvous: the state is damaged ({error})") from error


def _call(method: Callable[..., Any], *args: str) -> bytes:
    try:
        return method(*args)
    except (RuntimeError, OSError) as error:
        raise RendezvousConnectionError(_FAILED) from error


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """The backend and its store: ``store_type`` tcp (at the endpoint, hosted here where ``is_host``
    says so, else where the endpoint is this machine's) or file; ``read_timeout`` in seconds.

    Raises ``ValueError`` for bad parameters, ``RendezvousConnectionError``.
    """
    kind = str(params.get("store_type", "tcp")).strip().lower()
    if kind == "file":
        store = _file_store(params)
    elif kind == "tcp":
        store = _tcp_store(params)
    else:
        raise ValueError("Invalid store type given. Currently only supports file and tcp.")
    return C10dRendezvousBackend(store, params.run_id), store


def _timeout(params: RendezvousParameters, default: int) -> timedelta:
    seconds = cast(int, params.get_as_int("read_timeout", default))
    if seconds <= 0:
        raise ValueError("The read timeout must be a positive integer.")
    return timedelta(seconds=seconds)


def _file_store(params: RendezvousParameters) -> Store:
    path = params.endpoint
    if not path:
        try:
            fd, path = tempfile.mkstemp()
        except OSError as error:
            raise RendezvousError(
                "The file creation for C10d store has failed. See inner exception for details."
            ) from error
        os.close(fd)
    try:
        store = FileStore(path)
    except (RuntimeError, OSError) as error:
        raise RendezvousConnectionError(_FAILED) from error
    store.set_timeout(_timeout(params, 300))
    return store


def _tcp_store(params: RendezvousParameters) -> Store:
    host, port = _endpoint(params.endpoint)
    told = params.get_as_bool("is_host")
    timeout = _timeout(params, 60)
    for hosts in [told] if told is not None else [is_here(host), False]:
        try:
            known(host, port)
            store = TCPStore(host, port, None, bool(hosts), timeout)
        except (RuntimeError, OSError) as error:
            last = error
        else:
            store.host = host
            return store
    raise RendezvousConnectionError(_FAILED) from last


def _endpoint(endpoint: str) -> tuple[str, int]:
    host, port, rest = endpoint.strip(), "", ""
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if port and not (port.isdigit() and int(port) < 65536):
        raise ValueError(
            f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between "
            "0 and 65536."
        )
    return host or "localhost", int(port) if port else DEFAULT_PORT
