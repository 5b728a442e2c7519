"""Remote procedure calls: functions run by other workers, and references to what stays there.

From above; parts on one row do not know each other:

optim                  one optimizer over parameters that other workers have
rref | proxies | api   references, methods called through them, calls; PyTorch's names
membership | joining   how workers meet, come and go
rref_part | options    a worker's part in keeping values alive; what it may be told
autograd               backward over workers
calls                  what workers ask of others: packing, deadlines, failures
messages               bytes between workers: one host, several, simulated
"""

from __future__ import annotations

from typing import Any

from ..errors import CommError
from . import api, backend_registry, constants, functions
from .api import (
    _all_gather,
    _barrier,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _set_rpc_timeout,
    _wait_all,
    _wait_all_workers,
    get_rpc_timeout,
    get_worker_info,
    rpc_async,
    rpc_sync,
    shutdown,
)
from .backend_registry import BackendType
from .calls.current import SLOT, current_agent, has_agent
from .calls.workers import WorkerInfo
from .joining import meet, place_of
from .membership import come
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions
from .proxies import RRefProxy
from .rref import RRef, remote
from .rref_part import _rref_context_get_debug_info
from .rref_protocol import GloballyUniqueId

__outward__ = ("remote calls (RPC)", "")


def is_available() -> bool:
    """Whether workers can call each other here: always."""
    return True


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Join the workers under ``name``, which no other one has; from now on they can call this one.

    ``rank`` and ``world_size`` come from the environment where neither is given (``dtrun``).
    Returns when all are there. With a ``rank`` and no ``world_size`` workers come and go as they
    like: it returns when this worker knows all that are there, and they know it. Raises
    ``WorkerError`` for a name that is taken or cannot be one, ``ConfigError`` for other arguments
    without a meaning.
    """
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if rpc_backend_options is not None and not isinstance(rpc_backend_options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    _check_backend(backend, rpc_backend_options)
    if has_agent():
        raise CommError("RPC is already initialized: call shutdown() before the next init_rpc()")
    options = rpc_backend_options or TensorPipeRpcBackendOptions()
    if not world_size and rank >= 0:
        come(name, rank, options)
    else:
        meet(name, place_of(rank, world_size or None), options)


def _check_backend(backend: BackendType | None, options: RpcBackendOptions | None) -> None:
    """Raise unless the options are those of the backend; of some backend, where none is given."""
    if options is None:
        return
    if backend is None:
        makers = (backend_registry.construct_rpc_backend_options(b) for b in BackendType)
        if not any(isinstance(options, type(made)) for made in makers):
            raise TypeError(
                f"Could not infer backend for options {options}; give them as "
                "TensorPipeRpcBackendOptions(...)"
            )
    elif backend.name == "TENSORPIPE" and not isinstance(options, TensorPipeRpcBackendOptions):
        raise TypeError(
            "`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`; "
            f"{type(options).__name__} given"
        )


def enable_gil_profiling(flag: bool) -> None:
    """Whether the agent's ``get_debug_info`` measures how long threads wait for the interpreter."""
    current_agent().enable_gil_profiling(flag)
