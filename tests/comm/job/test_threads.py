"""Which threads may still go on: those that compute or sleep, not those that only others wake."""

from __future__ import annotations

import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from disttrain.comm.job.threads import others_may_move
from disttrain.comm.store import TCPStore


def others() -> bool:
    return others_may_move({threading.get_ident()})


def settled(want: bool) -> bool:
    """Whether that is the answer soon, and three times in a row."""
    for _ in range(200):
        if all(others() is want for _ in range(3)):
            return True
        time.sleep(0.005)
    return False


@contextmanager
def running(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    yield thread


def test_alone():
    assert settled(False)


@pytest.mark.parametrize("how", ["event", "queue", "join", "condition", "future"])
def test_what_only_another_thread_ends(how):
    stop, items, pool = threading.Event(), queue.Queue(), ThreadPoolExecutor(1)
    condition = threading.Condition()

    def wait():
        if how == "event":
            stop.wait()
        elif how == "queue":
            items.get()
        elif how == "join":
            inner.join()
        elif how == "condition":
            with condition:
                condition.wait()
        else:
            pool.submit(stop.wait).result()

    with running(stop.wait) as inner, running(wait) as outer:
        assert settled(False)
        stop.set()
        items.put(0)
        with condition:
            condition.notify()
        outer.join(10)
        assert not outer.is_alive()
    assert settled(False)  # the pool's thread waits for work
    pool.shutdown()


@pytest.mark.parametrize("how", ["sleep", "deadline", "socket", "timer"])
def test_what_may_go_on(how):
    stop, (a, b) = threading.Event(), socket.socketpair()

    def work():
        if how == "sleep":
            while not stop.is_set():
                time.sleep(0.01)
        elif how == "deadline":
            while not stop.wait(5.0):
                continue
        else:
            a.recv(1)

    timer = threading.Timer(60.0, work)
    if how == "timer":
        timer.start()
        assert settled(True)
    else:
        with running(work) as thread:
            assert settled(True)
            stop.set()
            b.send(b"x")
            thread.join(10)
    timer.cancel()
    if how == "timer":
        timer.join()
    a.close()
    b.close()
    assert settled(False)


def test_a_server_of_this_package_does_not_count():
    store = TCPStore("127.0.0.1", 0, 1, True)
    assert settled(False)
    store.close()
