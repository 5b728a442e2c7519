"""An endpoint with several transports: each peer is reached by the best that both have.

Its address names all of its endpoints, the best first:

    local:...|grpcs://10.0.0.1:4711

Whether a peer can be reached by a Unix socket is said by the address itself (the same boot of the
same kernel, network namespace and user). Knows that there are transports, and nothing of what they
do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from ...comm.sockets.proof import address_towards
from ...errors import CommError, ConfigError
from .contract.endpoint import Block, Endpoint, OnLost, OnMessage, is_closed, no_address
from .contract.message import Limits, Message
from .hosts.channels import SCHEMES
from .hosts.endpoint import RemoteEndpoint
from .local import handshake
from .local.endpoint import LocalEndpoint

LOCAL, GRPC = TRANSPORTS = ("local", "grpc")
_BETWEEN = "|"


def open_endpoint(
    me: int,
    token: bytes,
    transports: Sequence[str] | None = None,
    *,
    host: str | None = None,
    meeting_host: str | None = None,
    tls: bool = True,
    data_tls: bool | None = None,
    limits: Limits | None = None,
) -> Endpoint:
    """The endpoint of worker ``me`` with the transports that it needs.

    ``meeting_host``: the host at which the workers meet. Where that is reached without a network,
    all of them are on this host, and Unix sockets are enough; otherwise gRPC is there, too, and
    listens on the one address of this host that packets to ``meeting_host`` leave from, or on
    ``host`` where that is given. ``transports`` ("local", "grpc") says which are used, whatever the
    hosts are. ``tls``, ``data_tls``: see ``RemoteEndpoint``. Raises ``ConfigError``.
    """
    wanted = _checked(transports)
    if host is None:
        host = "127.0.0.1" if meeting_host is None else address_towards(meeting_host)
    if not host or _is(host, "is_unspecified"):
        raise ConfigError(
            f"rpc: host={host!r} given, which is every address of this host; name the one that "
            "other hosts reach"
        )
    if wanted is None and _is(host, "is_loopback"):
        return LocalEndpoint(me, token, limits)
    makers: dict[str, Callable[[], Endpoint]] = {
        LOCAL: lambda: LocalEndpoint(me, token, limits),
        GRPC: lambda: RemoteEndpoint(me, token, limits, host=host, tls=tls, data_tls=data_tls),
    }
    made: list[Endpoint] = []
    try:
        for name in wanted or TRANSPORTS:
            made.append(makers[name]())
    except BaseException:
        for endpoint in made:
            endpoint.close()
        raise
    return MixedEndpoint(made)


def is_between_hosts(address: str) -> bool:
    """Whether the endpoint with that address can be reached through a network."""
    return any(part.startswith(SCHEMES) for part in address.split(_BETWEEN))


def _is(host: str, what: str) -> bool:
    """Is an address "is_loopback" or "is_unspecified"? Names are neither, apart from localhost."""
    try:
        return bool(getattr(ipaddress.ip_address(host), what))
    except ValueError:
        return host == "localhost" and what == "is_loopback"


def _checked(transports: Sequence[str] | None) -> tuple[str, ...] | None:
    if transports is None:
        return None
    given = (transports,) if isinstance(transports, str) else tuple(transports)
    if not given or len(set(given)) != len(given) or not set(given) <= set(TRANSPORTS):
        raise ConfigError(
            f"rpc: transports={transports!r} given; needed are one or both of "
            f"{', '.join(TRANSPORTS)}, each once"
        )
    return given


class MixedEndpoint(Endpoint):
    """``endpoints`` belong to it from now on; a peer is reached by the first that can reach it."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        first = endpoints[0]
        super().__init__(first.me, first.token, first.limits)
        self._endpoints = list(endpoints)
        self._ways: dict[int, Endpoint] = {}
        self._closed = False
        self.address = _BETWEEN.join(endpoint.address for endpoint in endpoints)

    def serve(self, on_message: OnMessage, on_lost: OnLost) -> None:
        for endpoint in self._endpoints:
            endpoint.serve(self._noting(endpoint, on_message), on_lost)

    def _noting(self, endpoint: Endpoint, on_message: OnMessage) -> OnMessage:
        """``on_message``, after a look at the way by which an unknown peer has come."""
        ways = self._ways

        def heard(peer: int, message: Message) -> None:
            if peer not in ways:
                ways[peer] = endpoint
            on_message(peer, message)

        return heard

    def introduce(self, peer: int, address: str) -> None:
        way, part = self._choose(peer, address)
        way.introduce(peer, part)
        self._ways[peer] = way

    def connect(self, peer: int, address: str) -> None:
        way, part = self._choose(peer, address)
        way.connect(peer, part)
        self._ways[peer] = way

    def _choose(self, peer: int, address: str) -> tuple[Endpoint, str]:
        """The first of our endpoints that reaches a part of ``address``."""
        where = f"messages of worker {self.me}"
        if self._closed:
            raise is_closed(where)
        parts = address.split(_BETWEEN)
        for endpoint in self._endpoints:
            for part in parts:
                if _reaches(endpoint, part):
                    return endpoint, part
        raise CommError(
            f"{where}: worker {peer} is at {address}, which none of "
            f"{self.address} reaches; start all workers with the same transports"
        )

    def _way(self, peer: int) -> Endpoint:
        try:
            return self._ways[peer]
        except KeyError:
            where = f"messages of worker {self.me}"
            raise (is_closed(where) if self._closed else no_address(where, peer)) from None

    def send(self, peer: int, message: Message, awaited: bool = False) -> None:
        self._way(peer).send(peer, message, awaited)

    def waiting(self, peer: int, call: int = 0) -> Block:
        return self._way(peer).waiting(peer, call)

    def look_out(self, peer: int) -> None:
        if (way := self._ways.get(peer)) is not None:
            way.look_out(peer)

    def take(self, peer: int) -> None:
        if (way := self._ways.get(peer)) is not None:
            way.take(peer)

    def disconnect(self, peer: int) -> None:
        self._ways.pop(peer, None)
        for endpoint in self._endpoints:
            endpoint.disconnect(peer)

    def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints:
            endpoint.close()


def _reaches(endpoint: Endpoint, address: str) -> bool:
    if isinstance(endpoint, LocalEndpoint):
        return handshake.can_reach(address)
    if isinstance(endpoint, RemoteEndpoint):
        return address.startswith(SCHEMES)
    return True
