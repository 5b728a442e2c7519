"""Threads that grow with the work and are used again."""

from __future__ import annotations

import threading

import pytest

from disttrain import context
from disttrain.rpc.messages.hosts import threads as module
from disttrain.rpc.messages.hosts.threads import Threads

PATIENCE = 30.0


class Barred:
    """Bodies that run until the test lets them go on."""

    def __init__(self, threads):
        self.threads, self.gate, self.names, self.started = threads, threading.Event(), [], 0
        self.there = threading.Semaphore(0)

    def __call__(self):
        self.names.append(threading.current_thread().ident)
        self.there.release()
        assert self.gate.wait(PATIENCE)

    def run(self, count):
        for _ in range(count):
            self.threads.run(self)
        for _ in range(count):
            assert self.there.acquire(timeout=PATIENCE)


@pytest.fixture
def threads():
    made = Threads("test threads")
    yield made
    made.close()


def until(condition):
    with context.attach(context.Rank()):
        context.wait_until(condition, lambda: "the threads", PATIENCE)


def test_there_is_always_a_thread_for_the_next_one(threads):
    barred = Barred(threads)
    barred.run(5)
    assert threads.alive == len(set(barred.names)) == 5
    barred.gate.set()
    until(lambda: threads._idle == 5)


def test_an_idle_thread_is_used_again(threads):
    first = Barred(threads)
    first.gate.set()
    first.run(1)
    until(lambda: threads._idle == 1)
    second = Barred(threads)
    second.gate.set()
    second.run(1)
    assert second.names == first.names and threads.alive == 1


def test_they_belong_to_the_rank_of_who_made_them():
    rank = context.Rank(3, 4)
    with context.attach(rank):
        threads = Threads("of rank 3")
    seen = threads.submit(lambda: (context.current(), threading.current_thread().name))
    assert seen.result(PATIENCE) == (rank, "of rank 3")
    threads.close()


def test_what_is_submitted_gives_its_result_or_its_error(threads):
    assert threads.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(PATIENCE)


def test_an_error_is_logged_and_ends_no_thread(threads, caplog):
    def wrong():
        raise ValueError("nobody handles this")

    threads.run(wrong)
    until(lambda: threads._idle == 1)
    assert threads.submit(lambda: 5).result(PATIENCE) == 5 and threads.alive == 1
    assert "test threads: something was not handled" in caplog.text


def test_they_end_when_they_are_closed_and_after_a_time_without_work(monkeypatch):
    threads = Threads("closed")
    barred = Barred(threads)
    barred.run(2)
    threads.close()
    assert threads.alive == 2, "what is under way ends first"
    barred.gate.set()
    until(lambda: threads.alive == 0)
    monkeypatch.setattr(module, "KEEP", 0.001)
    short = Threads("short")
    short.submit(int).result(PATIENCE)
    until(lambda: short.alive == 0)
    assert short.submit(lambda: 7).result(PATIENCE) == 7, "and begin again"


def test_without_another_thread_the_work_is_refused_or_taken_by_one_that_is_there(
    threads, monkeypatch
):
    def none(body, name):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.context, "start_thread", none)
    with pytest.raises(RuntimeError, match="can't start"):
        threads.run(int)
    assert threads.alive == 0 and not threads._work

    def taken(body, name):
        threads._work.clear()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.context, "start_thread", taken)
    threads.run(int)
    assert threads.alive == 0
