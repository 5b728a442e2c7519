"""Names of ``torch.distributed.rpc`` that are not the project's own."""

from __future__ import annotations

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
