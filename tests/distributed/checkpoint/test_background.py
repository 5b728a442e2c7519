"""Work beside the program: one piece at a time, with a group of its own, and its errors."""

from __future__ import annotations

import threading

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed.checkpoint.background import background, wait_for_pending
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_work_runs_in_a_thread_of_the_same_rank():
    me = context.current()
    future = background(None, lambda group: (context.current() is me, threading.current_thread()))
    same, thread = future.result(60)
    wait_for_pending()
    assert same and thread is not threading.current_thread() and not thread.is_alive()


def test_the_next_piece_waits_for_the_one_before():
    go, seen = threading.Event(), []

    def slow(group):
        go.wait(60)
        seen.append("first")

    first = background(None, slow)
    assert not first.done()
    threading.Timer(0.05, go.set).start()
    background(None, lambda group: seen.append("second")).result(60)
    assert seen == ["first", "second"] and first.done()
    wait_for_pending()
    wait_for_pending()  # nothing runs


def test_an_error_is_the_futures_to_tell():
    def fails(group):
        raise KeyError("x")

    future = background(None, fails)
    wait_for_pending()
    with pytest.raises(KeyError):
        future.result(60)
    assert background(None, lambda group: 3).result(60) == 3
    wait_for_pending()


def test_simulated_ranks_do_it_at_once_with_the_programs_group():
    def body():
        seen = []

        def work(group):
            total = dt.ones(1) * (group.rank + 1)
            dist.all_reduce(total)
            seen.append(total.item())
            return total.item()

        future = background(dist.group.WORLD, work)
        return seen, future.done(), future.result()

    assert on_ranks(body, 3) == [([6.0], True, 6.0)] * 3
