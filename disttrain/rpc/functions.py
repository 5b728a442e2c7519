"""``async_execution``: functions that answer a call later, by a Future."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .calls.functions import ASYNC

F = TypeVar("F", bound=Callable[..., Any])


def async_execution(fn: F) -> F:
    """Say that ``fn`` returns a Future, and that whoever calls it from another worker wants what
    the Future brings. No thread of the callee waits for it.

        @rpc.functions.async_execution
        def add_later(to, x, y):
            return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda f: f.wait() + 1)

        rpc.rpc_sync("worker1", add_later, args=("worker2", x, y))   # a tensor

    Goes inside ``@staticmethod`` and ``@classmethod``; works for ``rpc_sync``, ``rpc_async``,
    ``remote`` and methods called through an RRef. A caller of a function that returns anything else
    gets an error. Called directly, the function is as it was.
    """

    @functools.wraps(fn)
    def wrapper(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    setattr(wrapper, ASYNC, fn)
    return wrapper  # type: ignore[return-value]
