"""Opens the registry that the command line names, on this node or on another one.

With the embedded one, a node is its host if it has been told so, or if the endpoint's address is
one of this machine and nobody of the same job listens there yet.
"""

from __future__ import annotations

import importlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from disttrain.comm.store.ports import PortTaken, is_loopback, is_of_this_machine, known
from disttrain.comm.store.tls import Tls
from disttrain.errors import CommError, ConfigError, LaunchError, StoreRefused, StoreUnreached

from ..options.rendezvous import TLS_FILES, Rendezvous
from ..plan.membership import TIMED_OUT
from .base import Registry
from .embedded import JOB, EmbeddedRegistry

_SILENT = 2  # tries to reach who has the port, after which it is no node of this job
_TRY = 0.7  # seconds for one try to reach the host
_HOW = (
    "Make one with (umask 077; head -c 32 /dev/urandom > token), copy it to every node, and give "
    "all of them --token-file token"
)


@dataclass
class Opened:
    """``address``: of this node, at which the others can reach it. ``hosts``: whether the registry
    ends with this node."""

    registry: Registry
    address: str
    hosts: bool


class CannotOpen(LaunchError):
    """The registry cannot be opened, and trying again would not help. ``code``: for the shell."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


def opened(
    r: Rendezvous, token: bytes | None, waiting: Callable[[float, str], bool]
) -> Opened | None:
    """The registry. ``waiting(seconds, last try)`` is called between tries; where it returns False,
    that is the end: None. Raises ``CannotOpen``."""
    try:
        if r.backend == "etcd":
            return _etcd(r, token, waiting)
        return _embedded(r, token, waiting)
    except CannotOpen:
        raise
    except (CommError, ConfigError, LaunchError, OSError) as error:
        raise CannotOpen(f"--rdzv-endpoint {r.endpoint}: {error}") from None


def _etcd(
    r: Rendezvous, token: bytes | None, waiting: Callable[[float, str], bool]
) -> Opened | None:
    began = time.monotonic()

    def still(why: str) -> bool:
        waited = time.monotonic() - began
        if waited >= r.join_timeout:
            raise _nobody(r, why)
        return waiting(waited, why)

    connect = importlib.import_module("disttrain_launcher.registry.etcd").connect
    registry = connect(r.endpoint, r.run_id, dict(r.conf), r.ttl, still)
    if registry is None:
        return None
    address = r.local_addr or towards(registry.host)
    if token is None and not is_loopback(address):
        registry.close()
        raise _no_token(r)
    return Opened(registry, address, False)


def _embedded(
    r: Rendezvous, token: bytes | None, waiting: Callable[[float, str], bool]
) -> Opened | None:
    kind_and_place = _resolved(r, waiting)
    if kind_and_place is None:
        return None
    address = kind_and_place[1][0]
    if token is None and not is_loopback(address):
        raise _no_token(r)
    if r.tls and token is None and not _files(r):
        raise CannotOpen(
            f"--rdzv-conf tls=1: certificates are made from the job's token, and there is none. "
            f"{_HOW}; or name files (cert=FILE,key=FILE,cacert=FILE)"
        )
    may_host = is_of_this_machine(*kind_and_place) if r.is_host is None else r.is_host
    waited, silent = 0.0, 0
    while True:
        trouble = ""
        if may_host:
            try:
                return Opened(_connect(r, True, token), r.local_addr or _own(r, token), True)
            except PortTaken as taken:
                trouble = str(taken)
        try:
            return Opened(_connect(r, False, token), r.local_addr or _own(r, token), False)
        except StoreRefused as error:
            told = f"{trouble}. What answers there: {error}" if trouble else error
            raise CannotOpen(f"--rdzv-endpoint {r.endpoint}: {told}") from None
        except StoreUnreached as error:
            last = str(error)
            silent = silent + 1 if trouble else 0
        waited += _TRY
        if silent == _SILENT:
            raise CannotOpen(f"--rdzv-endpoint {r.endpoint}: {trouble}")
        if waited >= r.join_timeout:
            raise _nobody(r, last)
        if not waiting(waited, last):
            return None


def _no_token(r: Rendezvous) -> CannotOpen:
    return CannotOpen(
        f"--rdzv-endpoint {r.endpoint}: nodes on several machines need a token, a file of secret "
        f"bytes. {_HOW}. Nodes of one machine meet at localhost without it"
    )


def _nobody(r: Rendezvous, last: str) -> CannotOpen:
    return CannotOpen(
        f"--rdzv-endpoint {r.endpoint}: nobody has answered in {r.join_timeout:g} s ({last}); "
        "start what is to answer there, or wait longer (--rdzv-conf join_timeout=SECONDS)",
        TIMED_OUT,
    )


def _connect(r: Rendezvous, hosts: bool, token: bytes | None) -> EmbeddedRegistry:
    patience = max(r.interval, r.ttl / 4)
    tls = _tls(r, hosts, token) if r.tls else None
    return EmbeddedRegistry(r.host, r.port, hosts, token, r.ttl, patience, _TRY, tls)


def _files(r: Rendezvous) -> dict[str, str]:
    """The files of certificates that the command line names."""
    return {key: value for key, value in r.conf if key in TLS_FILES}


def _tls(r: Rendezvous, hosts: bool, token: bytes | None) -> Tls:
    store_tls = importlib.import_module("disttrain.comm.sockets.store_tls")
    files = _files(r)
    made = (
        store_tls.from_files(host=r.host, **files)
        if files
        else store_tls.from_token(token, JOB, hosts)
    )
    return cast("Tls", made)


def _own(r: Rendezvous, token: bytes | None) -> str:
    return "127.0.0.1" if token is None else towards(r.host)


def _resolved(r: Rendezvous, waiting: Callable[[float, str], bool]) -> tuple[int, tuple] | None:
    """The kind of address and the address of the endpoint."""
    waited = 0.0
    while True:
        try:
            return known(r.host, r.port)
        except CommError as error:
            if waited >= r.name_timeout:
                raise CannotOpen(
                    f"--rdzv-endpoint {r.endpoint}: the name {r.host!r} is not known on this node; "
                    "give a name or an address that every node can look up "
                    "(or --rdzv-conf name_timeout=SECONDS, where it becomes known later)"
                ) from None
            last = str(error)
        waited += _TRY
        if not waiting(waited, last):
            return None


def towards(host: str) -> str:
    """The address of this machine from which packets to ``host`` leave."""
    try:
        kind, _, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as asked:
            asked.connect(where)
            return str(asked.getsockname()[0])
    except OSError as error:
        raise CannotOpen(
            f"there is no way from this node to {host!r} ({error}); give the address at which the "
            "others can reach it with --local-addr"
        ) from None
