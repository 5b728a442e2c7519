"""Calls of functions on other workers, and the end of it all. PyTorch's names and meaning."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import context
from ..futures import Future, wait_all
from .calls import kinds
from .calls.agent import Agent
from .calls.current import SLOT, current_agent, has_agent
from .calls.failures import not_initialized
from .calls.gathering import answer_all, drain, end_calls, gathering
from .calls.workers import WorkerInfo
from .constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from .membership import SLOT as MEMBERSHIP
from .profiling import noted
from .rref_part import _delete_all_user_and_unforked_owner_rrefs, _destroy_rref_context

# False: ``shutdown`` raises where others still refer to values of this worker. Programs set it.
_ignore_rref_leak = True

_thread_local_var = threading.local()  # of the ``_wait_all`` that a thread is in


def rpc_sync(
    to: WorkerInfo | int | str,
    func: Callable[..., Any],
    args: tuple | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Any:
    """Call ``func(*args, **kwargs)`` on worker ``to`` (a name, a rank or a ``WorkerInfo``), and
    return what it returns.

    Functions and classes travel by name, everything else is pickled; tensors go beside it.
    ``timeout`` in seconds (0: no limit; not given: the default of ``init_rpc``), after which
    ``WaitTimeout`` is raised. What the function raises is raised here, with the worker's name and
    its traceback. ``PeerFailed`` where the worker dies.
    """
    agent = context.thread.rank.slots.get(SLOT)
    if agent is None:
        raise not_initialized()
    if not callable(func):
        raise TypeError(f"function should be callable. {type(func).__name__} was given")
    if context.thread.stack:
        asked = (func, args or (), kwargs or {})
        future = agent.call(to, kinds.FUNCTION, asked, timeout, func)
        return noted("sync", func, agent, future).wait()
    return agent.ask(to, kinds.FUNCTION, (func, args or (), kwargs or {}), timeout, func)


def rpc_async(
    to: WorkerInfo | int | str,
    func: Callable[..., Any],
    args: tuple | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future:
    """As ``rpc_sync``, but returns at once: a Future of the result."""
    agent = current_agent()
    if not callable(func):
        raise TypeError(f"function should be callable. {type(func).__name__} was given")
    future = agent.call(to, kinds.FUNCTION, (func, args or (), kwargs or {}), timeout, func)
    if context.thread.stack:
        noted("async", func, agent, future)
    if hasattr(_thread_local_var, "future_list"):
        _thread_local_var.future_list.append(future)
    return future


@contextmanager
def _wait_all() -> Iterator[None]:
    """Wait at the end of the block for all that ``rpc_async`` has started in it."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        try:
            wait_all(_thread_local_var.future_list)
        finally:
            del _thread_local_var.future_list


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker of that name or number (None: this one)."""
    agent = current_agent()
    return agent.me if worker_name is None else agent.worker(worker_name)


def _to_worker_info(to: Any) -> WorkerInfo:
    return to if isinstance(to, WorkerInfo) else get_worker_info(to)


def get_rpc_timeout() -> float:
    """Seconds for a call that is given no timeout (0: no limit)."""
    return current_agent().timeout


def _set_rpc_timeout(rpcTimeoutSeconds: float) -> None:  # noqa: N803  (PyTorch's name)
    current_agent().timeout = float(rpcTimeoutSeconds)


def _is_current_rpc_agent_set() -> bool:
    return has_agent()


def _get_current_rpc_agent() -> Any:
    return current_agent()


def _all_gather(
    obj: object, worker_names: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> dict[str, Any]:
    """Everybody's ``obj`` by the name of its worker. Every worker of ``worker_names`` (None: all)
    calls it."""
    agent = current_agent()
    seconds = agent.timeout if timeout == UNSET_RPC_TIMEOUT else timeout
    return gathering(agent).all_gather(obj, worker_names, seconds)


def _barrier(worker_names: Iterable[str]) -> None:
    """Wait until all of ``worker_names`` are here."""
    _all_gather(None, set(worker_names))


def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Wait until all workers are here."""
    _all_gather(None, None, timeout)


def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Leave. ``graceful``: wait for all workers to come here and for all calls to end, at most
    ``timeout`` seconds (0: no limit); this worker answers calls meanwhile. (Where workers come and
    go, it waits for its own calls alone.) Otherwise leave at once: calls in flight fail, here and
    at those who made them."""
    agent = current_agent()
    membership = agent.slots.get(MEMBERSHIP)
    try:
        if graceful and membership is not None:
            end_calls(agent, timeout)
            _finish(agent, timeout)
            membership.leave(timeout)
        elif graceful:
            _wait_all_workers(timeout)  # by its name here, which programs may give another function
            drain(agent, timeout)
            _finish(agent, timeout)
            drain(agent, timeout)
            answer_all(agent, timeout)
        _destroy_rref_context(_ignore_rref_leak)
    finally:
        agent.close()
        context.current().slots.pop(SLOT, None)
        if membership is not None:
            membership.close()


def _finish(agent: Agent, timeout: float) -> None:
    """Let other parts end what they have under way with this agent."""
    for finish in agent.drains:
        finish(timeout or None)
    _delete_all_user_and_unforked_owner_rrefs()
