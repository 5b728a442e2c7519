"""Which backends there are. The one of this package goes by PyTorch's name, TENSORPIPE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import context
from ..errors import ConfigError
from .constants import DEFAULT_INIT_METHOD, DEFAULT_RPC_TIMEOUT_SEC
from .joining import join
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions

_SLOT = "rpc.backends"


class BackendValue(NamedTuple):
    """How a backend makes its options and its agent."""

    construct_rpc_backend_options_handler: Callable[..., Any]
    init_backend_handler: Callable[..., Any]


class _Members(type):
    """Lists the members like an enum's class; those that a program registers are its rank's."""

    @property
    def __members__(cls) -> dict[str, BackendType]:
        return {"TENSORPIPE": _TENSORPIPE, **_registered()}

    def __iter__(cls) -> Iterator[BackendType]:
        return iter(cls.__members__.values())

    def __len__(cls) -> int:
        return len(cls.__members__)

    def __getitem__(cls, name: str) -> BackendType:
        return cls.__members__[name]

    def __getattr__(cls, name: str) -> BackendType:
        if name.startswith("_") or name not in cls.__members__:
            raise AttributeError(f"there is no backend BackendType.{name}")
        return cls.__members__[name]


class BackendType(metaclass=_Members):
    """A backend of RPC: ``BackendType.TENSORPIPE``, or one that ``register_backend`` made."""

    def __init__(self, name: str, value: BackendValue) -> None:
        self.name, self.value = name, value

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def _registered() -> dict[str, BackendType]:
    """What this rank's program has added."""
    return context.current().slot(_SLOT, dict)


def backend_registered(backend_name: str) -> bool:
    return backend_name in BackendType.__members__


def register_backend(
    backend_name: str,
    construct_rpc_backend_options_handler: Callable[..., Any],
    init_backend_handler: Callable[..., Any],
) -> BackendType:
    """Add a backend: ``construct(rpc_timeout, init_method, **kwargs)`` makes its options,
    ``init(store=, name=, rank=, world_size=, rpc_backend_options=)`` its agent."""
    if backend_registered(backend_name):
        raise ConfigError(f"RPC backend {backend_name}: already registered")
    value = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    made = _registered()[backend_name] = BackendType(backend_name, value)
    return made


def construct_rpc_backend_options(
    backend: BackendType,
    rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
    init_method: str = DEFAULT_INIT_METHOD,
    **kwargs: object,
) -> RpcBackendOptions:
    """The options of ``backend``."""
    make = backend.value.construct_rpc_backend_options_handler
    options: RpcBackendOptions = make(rpc_timeout, init_method, **kwargs)
    return options


def init_backend(backend: BackendType, *args: object, **kwargs: object) -> Any:
    """The agent of ``backend``, which has joined the others."""
    return backend.value.init_backend_handler(*args, **kwargs)


def _options(rpc_timeout: float, init_method: str, **kwargs: Any) -> TensorPipeRpcBackendOptions:
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)


_TENSORPIPE = BackendType("TENSORPIPE", BackendValue(_options, join))
