"""Methods of a value called through an RRef to it: they run at the owner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .api import rpc_async, rpc_sync
from .calls.allowed import check_method
from .calls.current import current_agent
from .calls.functions import ASYNC, Later, checked
from .constants import UNSET_RPC_TIMEOUT


class RRefProxy:
    """What ``RRef.rpc_sync()``, ``.rpc_async()`` and ``.remote()`` return: its attributes are
    functions that call the method of that name with ``rpc_api``."""

    def __init__(
        self, rref: Any, rpc_api: Callable[..., Any], timeout: float = UNSET_RPC_TIMEOUT
    ) -> None:
        self.rref, self.rpc_api, self.rpc_timeout = rref, rpc_api, timeout

    def __getattr__(self, func_name: str) -> Any:
        return partial(_invoke_rpc, self.rref, self.rpc_api, func_name, self.rpc_timeout)


def _invoke_rpc(
    rref: Any,
    rpc_api: Callable[..., Any],
    func_name: str,
    timeout: float,
    /,
    *args: object,
    **kwargs: object,
) -> Any:
    if rpc_api is not rpc_sync and rpc_api is not rpc_async:
        # What makes an RRef is to say at once that there is no such method.
        getattr(rref._get_type(timeout=timeout), func_name)
    return rpc_api(
        rref.owner(), _local_invoke, args=(rref, func_name, args, kwargs), timeout=timeout
    )


def _local_invoke(rref: Any, func_name: str, args: tuple, kwargs: dict) -> Any:
    """At the owner: call the method. One that is asynchronous answers by its Future."""
    value = rref.local_value()
    check_method(value, func_name, current_agent().packer.allowed)
    method = getattr(value, func_name)
    result = method(*args, **kwargs)
    return Later(checked(method, result)) if hasattr(method, ASYNC) else result
