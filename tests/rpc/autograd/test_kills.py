"""A worker that is killed at any message of forward, backward or release: whoever calls hears of
it, the others go on, and nobody keeps a context.

``SCHEDULES=20 pytest ...`` tries twenty times as many.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from disttrain import context, rpc
from disttrain.rpc import autograd
from support.cases import call_programs as programs
from support.cases.rpc_programs import name
from support.rpc_faults import try_kills

pytestmark = pytest.mark.simulated

TIMES = int(os.environ.get("SCHEDULES", "1"))


def _call(to: int, fn: Any, *args: Any) -> Any:
    return rpc.rpc_sync(name(to), fn, args)


def _start(to: int, fn: Any, *args: Any) -> Any:
    return rpc.rpc_async(name(to), fn, args)


def work(key: int) -> None:
    """Two workers drive the program, in contexts of their own."""
    if context.current().rank > 1:
        return
    with autograd.context() as context_id:
        loss = programs.loss_of(key, (_call, _start))
        autograd.backward(context_id, [loss], retain_graph=True)
        autograd.backward(context_id, [loss])


def left() -> list[str]:
    info = autograd._get_debug_info()
    return [f"{n} {what}" for what, n in info.items() if n != "0"]


@pytest.mark.parametrize("batch", range(2 * TIMES))
def test_killed_at_any_message(batch: int) -> None:
    for key in range(3010 + 3 * batch, 3013 + 3 * batch):
        size = 3 + key % 2
        programs.PROGRAMS[key] = programs.Program(size, key)
        try_kills(size, key, lambda key=key: work(key), 2, left=left)
        del programs.PROGRAMS[key]
