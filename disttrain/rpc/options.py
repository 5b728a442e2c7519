"""What a worker may set when it joins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from ..errors import ConfigError
from .calls.endpoints import Ways
from .calls.settings import Settings
from .constants import (
    DEFAULT_INIT_METHOD,
    DEFAULT_NUM_WORKER_THREADS,
    DEFAULT_RPC_TIMEOUT_SEC,
)
from .device_maps import to_device_map, to_devices


class RpcBackendOptions:
    """Options of any backend.

    ``rpc_timeout``: seconds for a call that is given none; 0 means no limit. ``init_method``:
    where the workers meet: "env://", "tcp://host:port" or "file:///path".
    """

    def __init__(
        self,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = DEFAULT_INIT_METHOD,
    ) -> None:
        self.rpc_timeout, self.init_method = _seconds(rpc_timeout), init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options of the one backend that there is, under PyTorch's name for its.

    ``num_worker_threads`` is only kept: there is always a thread for the next call.
    ``device_maps``: ``{worker: {device here: device there}}``; ``devices``: those used here. They
    are checked when the workers meet.

    Beyond PyTorch's: ``callable_modules``: modules and packages whose functions other workers may
    call here, and the methods of their values (None: any). ``cloudpickle``: lambdas and local
    functions travel as their code.
    ``max_depth``: how deep calls may be nested in each other; ``max_calls``: how many calls of one
    worker are handled here at once; ``max_calls_per_second``: and come in a second (None: any
    number); ``max_message_bytes``: how large a call or an answer may be, with its tensors (the
    limit ``message_bytes``; None: the transport's). ``transports``: "local" (Unix sockets) and
    "grpc", in the order in which they are tried for each peer; None: what the hosts need. ``host``:
    the address of this host at which gRPC listens (None: the one that leads to where the workers
    meet). ``tls=False``: what travels between hosts is not encrypted, only the beginning of each
    connection is proved; ``data_tls=False``: large tensors are not (None: as ``tls``).
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = DEFAULT_INIT_METHOD,
        device_maps: dict[str, dict[Any, Any]] | None = None,
        devices: list[Any] | None = None,
        _transports: list | None = None,
        _channels: list | None = None,
        callable_modules: Collection[str] | None = None,
        cloudpickle: bool = False,
        max_depth: int = Settings.max_depth,
        max_calls: int = Settings.max_calls,
        max_calls_per_second: float | None = None,
        max_message_bytes: int | None = None,
        transports: Sequence[str] | None = None,
        host: str | None = None,
        tls: bool = True,
        data_tls: bool | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        self.ways = Ways(transports, host, tls, data_tls, max_message_bytes)
        self.num_worker_threads = num_worker_threads
        self.device_maps = {to: to_device_map(m) for to, m in (device_maps or {}).items()}
        self.devices = to_devices(devices or [])
        self.callable_modules, self.cloudpickle = callable_modules, cloudpickle
        self.max_depth, self.max_calls = max_depth, max_calls
        self.max_calls_per_second = max_calls_per_second

    def set_device_map(self, to: str, device_map: dict[Any, Any]) -> None:
        """Add to the map for calls of worker ``to``."""
        added, known = to_device_map(device_map), self.device_maps.get(to, {})
        for here, there in added.items():
            if known.get(here, there) != there:
                raise ConfigError(
                    "`set_device_map` only supports 1-to-1 mapping, trying to map "
                    f"{here} to {there} and {known[here]}"
                )
        self.device_maps[to] = {**known, **added}

    def set_devices(self, devices: list[Any]) -> None:
        """Say which devices of this worker are used."""
        self.devices = to_devices(devices)


def settings_of(options: RpcBackendOptions) -> Settings:
    """What the agent needs to know of ``options``."""
    names = ("max_depth", "max_calls", "max_calls_per_second", "callable_modules", "cloudpickle")
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    threads = getattr(options, "num_worker_threads", DEFAULT_NUM_WORKER_THREADS)
    return Settings(timeout=options.rpc_timeout, threads=threads, **given)


def ways_of(options: RpcBackendOptions) -> Ways:
    """How messages are to travel by ``options``."""
    return getattr(options, "ways", Ways())


def _seconds(timeout: timedelta | float | None) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            "RpcBackendOptions: incompatible constructor arguments: "
            f"rpc_timeout={timeout!r} given; a number of seconds is needed"
        )
    return float(timeout)
