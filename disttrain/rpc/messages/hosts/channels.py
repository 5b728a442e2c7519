"""gRPC's servers and channels as messages between hosts need them.

Every setting was measured or attacked. Loads grpcio with the first call. Knows addresses and
certificates; not what is said on the streams.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from typing import Any

from ....comm.sockets.certificates import Certificates
from ....errors import CommError
from ..contract.message import Limits

PLAIN, SECURE = "grpc", "grpcs"
SCHEMES = (f"{PLAIN}://", f"{SECURE}://")  # how addresses begin
_SERVICE, _METHOD = "disttrain.Messages", "Stream"
STREAM = f"/{_SERVICE}/{_METHOD}"
_PEERS = 4096  # that may be connected at once

_SILENCE = 3500  # ms in which a peer's host answers a sign of life, as between ranks
_SETTINGS = (
    ("grpc.max_receive_message_length", 2 << 20),  # frames are about 1 MB
    ("grpc.http2.lookahead_bytes", 64 << 20),  # what may be on its way: three times as fast
    ("grpc.http2.max_frame_size", (16 << 20) - 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", _SILENCE),
    ("grpc.http2.ping_timeout_ms", _SILENCE),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),  # a port belongs to one worker
    ("grpc.use_local_subchannel_pool", 1),  # a connection, too
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.max_metadata_size", 4096),
)


def grpc() -> Any:
    """The package, which is to write no line for every stranger that it turns away."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return importlib.import_module("grpc")


def listen(
    host: str, own: Certificates | None, hear: Callable, threads: object, limits: Limits
) -> tuple[Any, str]:
    """A server on a free port of ``host`` and its address. ``hear`` handles every stream on one of
    ``threads``; without certificates (``own``) there is no TLS. Raises ``CommError``."""
    package = grpc()
    methods = {_METHOD: package.stream_stream_rpc_method_handler(hear)}
    handlers = [package.method_handlers_generic_handler(_SERVICE, methods)]
    milliseconds = int(limits.handshake_seconds * 1000)
    options = (
        *_SETTINGS,
        ("grpc.server_handshake_timeout_ms", milliseconds),
        ("grpc.max_connection_idle_ms", milliseconds),  # those of peers have streams
        ("grpc.max_connection_age_grace_ms", milliseconds),
        ("grpc.max_allowed_incoming_connections", _PEERS + limits.strangers),
    )
    server = package.server(threads, handlers=handlers, options=options)
    where = f"[{host}]" if ":" in host else host
    try:
        if own is None:
            port = server.add_insecure_port(f"{where}:0")
        else:
            pairs = [(own.key, own.certificate)]
            credentials = package.ssl_server_credentials(pairs, own.authority, True)
            port = server.add_secure_port(f"{where}:0", credentials)
    except RuntimeError as error:
        raise CommError(
            f"messages: cannot listen on {host} ({error}); the address of one of this host's "
            "network interfaces is needed"
        ) from None
    server.start()
    return server, f"{PLAIN if own is None else SECURE}://{where}:{port}"


def connect(address: str, own: Certificates | None, name: str) -> Any:
    """A channel to ``address``, whose certificate must bear ``name``. Connects when it is used."""
    package, where = grpc(), target(address)[1]
    if own is None:
        return package.insecure_channel(where, options=_SETTINGS)
    credentials = package.ssl_channel_credentials(own.authority, own.key, own.certificate)
    options = (*_SETTINGS, ("grpc.ssl_target_name_override", name))
    return package.secure_channel(where, credentials, options=options)


def is_there(channel: Any, seconds: float) -> bool:
    """Whether gRPC has met that of the other side (TLS and all), which needs nobody there but its
    own threads. Waits at most ``seconds`` to be told."""
    told, states = threading.Event(), []

    def tell(state: object) -> None:
        states.append(state)
        told.set()

    channel.subscribe(tell)
    told.wait(seconds)
    channel.unsubscribe(tell)
    return grpc().ChannelConnectivity.READY in states


def target(address: str) -> tuple[bool, str]:
    """Whether an address is one with TLS, and what gRPC is to connect to."""
    scheme, separator, where = address.partition("://")
    if not separator or scheme not in (PLAIN, SECURE) or not where:
        raise CommError(
            f"messages: the address {address!r} was given; one like {SECURE}://host:port is needed"
        )
    return scheme == SECURE, where


def host_of(address: str) -> str:
    """The host of an address, as sockets are told it."""
    return target(address)[1].rpartition(":")[0].strip("[]")


def reason(call: Any, address: str) -> str:
    """Why gRPC ended a stream, in a few words."""
    code = call.code()
    name = "" if code is None else code.name
    details = (call.details() or "").strip()
    if name == "OK":
        return "it has disconnected"
    if name == "UNAUTHENTICATED":
        return f"it refused this worker: {details}"
    if name == "CANCELLED":
        return f"it did not answer at {address} in time, or left"
    return f"no connection to {address} ({details or name.lower()})"
