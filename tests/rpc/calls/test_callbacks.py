"""Threads for callbacks: none waits behind one that blocks, and few are started."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from disttrain import context
from disttrain.rpc.calls.callbacks import Callbacks


def test_a_callback_that_blocks_keeps_no_other_waiting():
    callbacks = Callbacks(context.current().waiter.start_thread)
    gate, passed = threading.Event(), threading.Semaphore(0)

    def block():
        assert gate.wait(30)
        passed.release()

    for _ in range(3):
        callbacks.put([block])
    callbacks.put([gate.set])
    assert all(passed.acquire(timeout=30) for _ in range(3))
    again = threading.Event()  # on one of the threads that now have nothing to do
    callbacks.put([again.set])
    assert again.wait(30)
    callbacks.close()


def test_one_thread_runs_many_in_order_and_sends_for_one_more():
    started, ran = [], []
    callbacks = Callbacks(lambda body, name: started.append(body))
    for i in range(10):
        callbacks.put([partial(ran.append, 2 * i), partial(ran.append, 2 * i + 1)])
    assert len(started) == 1 and not ran
    callbacks.close()
    started[0]()
    assert ran == list(range(20)) and len(started) == 2
    started[1]()  # finds nothing, and ends
    callbacks.put([partial(ran.append, 20)])  # such as that of a call which close() has failed
    assert len(started) == 3
    started[2]()
    assert ran[-1] == 20


def test_where_no_thread_can_be_started_the_others_run_everything():
    started, ran = [], []

    def start(body, name):
        if len(started) != 1:
            started.append(None)
            raise RuntimeError("can't start new thread")
        started.append(body)

    callbacks = Callbacks(start)
    with pytest.raises(RuntimeError, match="can't start"):
        callbacks.put([partial(ran.append, 0)])
    for i in (1, 2):
        callbacks.put([partial(ran.append, i)])
    callbacks.close()
    started[1]()
    assert ran == [0, 1, 2]


def test_a_thread_that_sleeps_is_sent_for():
    names = []

    def start(body, name):
        names.append(name)
        context.current().waiter.start_thread(body, name)

    callbacks = Callbacks(start)
    for _ in range(20):
        done = threading.Event()
        callbacks.put([done.set])
        assert done.wait(30)
        while not callbacks._idle:
            context.sleep(0.0005)
    assert len(names) == 1
    callbacks.close()
