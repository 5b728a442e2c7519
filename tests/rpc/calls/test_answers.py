"""Answers that nobody waits for yet: read when somebody asks for them, and never lost."""

import threading
import time

import pytest

from disttrain import context, rpc
from disttrain.errors import WaitTimeout
from disttrain.rpc.messages.local import link, pool
from support.workers import run_workers


def double(n):
    return 2 * n


def test_answers_that_nobody_has_read(tmp_path, monkeypatch):
    """No look now and then helps here: each way of asking for an answer has it read."""
    monkeypatch.setattr(pool, "TICK", 1000.0)
    monkeypatch.setattr(link, "MANY", 8)

    def body(rank):
        if rank:
            return
        called = threading.Event()
        rpc.rpc_async("worker1", double, (1,)).then(lambda future: called.set())
        assert called.wait(50)
        future = rpc.rpc_async("worker1", double, (2,))
        context.wait_until(future.done, lambda: "an answer", 50)
        child = rpc.rpc_async("worker1", double, (3,)).then(lambda future: future.value() + 1)
        context.wait_until(child.done, lambda: "a callback", 50)
        assert child.wait() == 7
        late = rpc.rpc_async("worker1", double, (4,), timeout=1.0)  # the answer is in time
        lost = rpc.rpc_async("worker1", time.sleep, (1.5,), timeout=1.0)
        context.sleep(1.1)
        assert late.wait() == 8
        with pytest.raises(WaitTimeout):
            lost.wait()
        for n in range(50):  # forgotten at once
            rpc.rpc_async("worker1", double, (n,))
        futures = [rpc.rpc_async("worker1", double, (n,)) for n in range(50)]
        assert [future.wait() for future in reversed(futures)] == list(range(98, -1, -2))
        rpc.rpc_async("worker1", double, (5,))  # the end waits for it

    run_workers(2, body, tmp_path)
