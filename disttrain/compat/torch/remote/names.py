"""Names of ``torch.distributed.rpc`` that are not the project's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .... import rpc
from ....rpc import autograd, constants
from ....rpc.calls.agent import Agent
from ....rpc.calls.current import current_agent

TensorPipeAgent = RpcAgent = Agent
PyRRef = rpc.RRef
_DEFAULT_INIT_METHOD = constants.DEFAULT_INIT_METHOD
_DEFAULT_RPC_TIMEOUT_SEC = constants.DEFAULT_RPC_TIMEOUT_SEC
_DEFAULT_NUM_WORKER_THREADS = constants.DEFAULT_NUM_WORKER_THREADS
_UNSET_RPC_TIMEOUT = constants.UNSET_RPC_TIMEOUT


def _get_debug_info() -> dict[str, Any]:
    """What the parts tell about themselves."""
    return {
        **rpc._rref_context_get_debug_info(),
        **current_agent().get_debug_info(),
        **autograd._get_debug_info(),
    }


class AllGatherStates:
    """What a worker keeps of one gathering of objects from all."""

    def __init__(self) -> None:
        self.gathered_objects: dict[str, Any] = {}
        self.proceed_signal = threading.Event()


def method_factory(method_name: str, docstring: str | None) -> Callable[..., Any]:
    """A method of ``RRef`` that calls the one of its base with that name."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(PyRRef, self), method_name)(*args, **kwargs)

    method.__doc__ = docstring
    return method


new_method = method_factory("confirmed_by_owner", "Whether the owner knows of this reference.")
