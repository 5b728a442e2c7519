"""Requests that run a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import FutureError
from ...futures import Future
from . import kinds
from .agent import Agent
from .failures import pack_failure, unpack_failure
from .workers import WorkerInfo

ASYNC = "_wrapped_async_rpc_function"  # the attribute of functions that answer by a Future


class Later:
    """What a function of this package returns that answers by ``future``, this time."""

    __slots__ = ("future",)

    def __init__(self, future: Future) -> None:
        self.future = future


def serve_functions(agent: Agent) -> None:
    """Let others call functions of this worker."""
    agent.handle(kinds.FUNCTION, _run)


def _run(caller: WorkerInfo, called: tuple) -> Any:
    return run_function(*called)


def run_function(fn: Callable, args: tuple, kwargs: dict) -> Any:
    """What ``fn`` returns, as a handler answers it: the Future of a function that is said to be
    asynchronous (``async_execution``), or a value that is not a Future."""
    result = fn(*args, **kwargs)
    if hasattr(fn, ASYNC):
        return checked(fn, result)
    if result.__class__ is Later:
        return result.future
    if isinstance(result, Future):
        raise FutureError(
            "Can not pickle torch.futures.Future: a function that answers by one must be decorated "
            "with @rpc.functions.async_execution"
        )
    return result


def run_here(agent: Agent, fn: Callable, args: tuple) -> Future:
    """A Future of what ``fn`` returns, called at once on this thread; it is done. Errors are those
    of a call that this worker makes to itself."""
    done: Future = Future()
    try:
        done.set_result(run_function(fn, args, {}))
    except Exception as error:
        done.set_exception(unpack_failure(pack_failure(agent.me, error), agent.packer))
    return done


def checked(fn: Callable, result: object) -> Future:
    """The Future that ``fn``, which is said to be asynchronous, has returned."""
    if isinstance(result, Future):
        return result
    raise FutureError(
        "Functions decorated with @rpc.async_function must return a torch.futures.Future "
        f"object, but got {type(result).__name__} from {getattr(fn, '__qualname__', fn)}"
    )
