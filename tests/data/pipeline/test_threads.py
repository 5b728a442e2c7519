"""Threads: order, errors, ends, forks."""

from __future__ import annotations

import contextvars
import gc
import os
import threading
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain.data.pipeline import Pipeline
from disttrain.errors import ConfigError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def settled(before: int) -> bool:
    """Have the threads ended?"""
    end = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.005)
    return threading.active_count() <= before


def test_results_come_in_order_and_calls_overlap():
    met = threading.Barrier(3)

    def fn(x):
        met.wait(30)  # three at a time
        return x * 2

    assert items(Pipeline.range(9).map(fn, num_parallel_calls=3)) == list(range(0, 18, 2))


def test_out_of_order_gives_what_is_done():
    first = threading.Event()

    def fn(x):
        if x.item() == 0:
            first.wait(30)
        return x

    it = iter(Pipeline.range(4).map(fn, num_parallel_calls=2, deterministic=False))
    found = [next(it).item() for _ in range(3)]
    first.set()
    assert sorted(found) == [1, 2, 3] and [x.item() for x in it] == [0]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_errors_come_in_their_place(ahead):
    def fn(x):
        if x.item() in (1, 2):
            raise ValueError(f"of {x.item()}")
        return x

    it = iter(Pipeline.range(5).map(fn, num_parallel_calls=3).prefetch(ahead))
    found = []
    for _ in range(5):
        try:
            found.append(next(it).item())
        except ValueError as error:
            found.append(str(error))
    assert found == [0, "of 1", "of 2", 3, 4]
    with pytest.raises(StopIteration):
        next(it)


def test_an_error_has_the_line_of_the_program():
    def wrong(x):
        return {}["key"]

    with pytest.raises(KeyError) as caught:
        items(Pipeline.range(3).map(wrong, num_parallel_calls=2).prefetch(2))
    assert caught.traceback[-1].name == "wrong"


@pytest.mark.parametrize("how", ["end", "break", "close", "error", "drop"])
def test_threads_end_with_the_iterator(how):
    before = threading.active_count()
    made = Pipeline.range(1000).map(lambda x: x, num_parallel_calls=4).prefetch(4).batch(2)
    if how == "end":
        items(made)
    elif how == "break":
        for _ in made:
            break
    elif how == "error":
        with pytest.raises(ValueError):
            items(made.map(lambda x: dt.tensor(int("x"))))
    else:
        it = iter(made)
        next(it)
        if how == "close":
            it.close()
            with pytest.raises(StopIteration):
                next(it)
        del it
    gc.collect()
    assert settled(before)


def test_no_more_is_read_than_buffers_hold():
    read = []
    source = Pipeline.from_generator(lambda: (read.append(i) or i for i in range(1000)))
    it = iter(source.map(lambda x: x, num_parallel_calls=2).prefetch(3))
    next(it)
    time.sleep(0.1)
    assert len(read) <= 1 + 3 + 1 + 2
    it.close()


def test_nothing_runs_before_the_first_element():
    read = []
    source = Pipeline.from_generator(lambda: (read.append(i) or i for i in range(10)))
    it = iter(source.prefetch(5))
    time.sleep(0.05)
    assert read == []
    it.close()


def test_threads_belong_to_the_rank():
    rank = context.current()
    made = Pipeline.range(4).map(lambda x: x + (context.current() is rank), num_parallel_calls=2)
    assert items(made.prefetch(1)) == [1, 2, 3, 4]


def test_threads_see_context_variables():
    variable = contextvars.ContextVar("variable", default=0)
    token = variable.set(5)
    made = Pipeline.range(3).map(lambda x: x + variable.get(), num_parallel_calls=2).prefetch(1)
    assert items(made) == [5, 6, 7]
    variable.reset(token)


def test_two_at_once_and_several_threads_of_one():
    made = Pipeline.range(200).map(lambda x: x, num_parallel_calls=2).prefetch(2)
    a, b = iter(made), iter(made)
    assert [(x.item(), y.item()) for x, y in zip(a, b, strict=True)] == [(i, i) for i in range(200)]
    shared, found = iter(made), []
    readers = [
        threading.Thread(target=lambda: found.extend(x.item() for x in shared)) for _ in range(3)
    ]
    for t in readers:
        t.start()
    for t in readers:
        t.join()
    assert sorted(found) == list(range(200))


def test_a_forked_process_is_told():
    it = iter(Pipeline.range(10).prefetch(2))
    next(it)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(it)
            told = b"no error"
        except ConfigError as error:
            told = str(error).encode()
        os.write(write, told)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"another process" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    assert len(list(it)) == 9
