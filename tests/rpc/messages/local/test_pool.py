"""Threads that wait on one epoll: how many stay, where no more can be had, and who looks."""

from __future__ import annotations

import logging
import threading

import pytest

from disttrain import context
from disttrain.rpc.messages.local import pool as pool_module
from disttrain.rpc.messages.local.pool import QUIET, SPARE, Pool


@pytest.fixture
def pool():
    made = Pool("a pool", 4, lambda: None)
    yield made
    made.close(2.0)


def test_threads_that_leave_together_leave_some(pool, monkeypatch):
    """As many ask at the same time as there are: those that are to stay, stay."""
    monkeypatch.setattr(pool_module, "KEEP", -1.0)
    pool._alive = pool._idle = 5
    assert [pool._surplus(0.0) for _ in range(5)] == [True, True, True, False, False]
    assert pool._alive == pool._idle == SPARE
    pool._alive = pool._idle = 0


def test_who_asks_whether_to_leave_beside_another_one_stays(pool, monkeypatch):
    """The other one has left between the two looks at how many there are."""
    monkeypatch.setattr(pool_module, "KEEP", -1.0)
    pool._alive = pool._idle = SPARE + 1

    class Lock:
        def __enter__(self):
            pool._idle = pool._alive = SPARE

        def __exit__(self, *exc):
            pool._lock = threading.Lock()

    pool._lock = Lock()
    assert not pool._surplus(0.0)
    assert pool._alive == pool._idle == SPARE
    pool._alive = pool._idle = 0


def test_no_thread_can_be_had(pool, monkeypatch, caplog):
    """Those that are there go on, and it is told once; later there may be one again."""

    def refuse(body, name):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(context, "start_thread", refuse)
        with caplog.at_level(logging.WARNING, "disttrain.messaging"):
            pool.may_block()
            pool.may_block()
    assert pool._alive == pool._idle == 0
    (record,) = caplog.records
    assert "can't start new thread" in record.getMessage()
    pool.may_block()
    assert pool._alive == 1


def test_the_limit_is_told(pool, caplog):
    pool._alive, pool._idle = 4, 0
    with caplog.at_level(logging.WARNING, "disttrain.messaging"):
        pool.may_block()
        pool.may_block()
    (record,) = caplog.records
    assert "limits.threads is 4" in record.getMessage() and "wait" in record.getMessage()
    assert pool._alive == 4
    pool._alive = 0


def test_a_holder_that_comes_when_nobody_looks_any_more_is_looked_at(pool):
    """It found a thread that looks, which was about to stop."""

    class Late(dict):
        def __iter__(self):  # the thread copies the holders: one comes just afterwards
            yield from ()
            self[holder] = 1

        keys = __iter__

    class Holder:
        def let_go(self, turn):
            assert turn == 1

    holder = Holder()
    pool._lively, pool._quiet, pool._holders = True, QUIET, Late()
    pool._look_at_holders()
    assert pool._holders and pool._lively
