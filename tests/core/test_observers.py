"""Reads of arrays, told to interpreters of the thread while a block lasts."""

from __future__ import annotations

import threading

import disttrain as dt
from disttrain import context
from disttrain.core.observers import watched
from disttrain.core.tensor import Tensor


class Listener:
    dynamic = True
    level = -1

    def __init__(self):
        self.seen = []

    def on_array(self, t, frame):
        self.seen.append((t, frame.f_code.co_name))

    def process(self, prim, args, params, proceed):
        return proceed(prim, args, params)


def test_reads_are_told_with_their_frame():
    x, listener = dt.ones(2), Listener()
    with watched(), context.interpreter(listener):
        _ = x.array
    assert [(t is x, name) for t, name in listener.seen] == [
        (True, "test_reads_are_told_with_their_frame")
    ]
    _ = x.array
    assert len(listener.seen) == 1 and "__getattribute__" not in vars(Tensor)


def test_other_threads_are_not_heard():
    x, listener = dt.ones(2), Listener()
    with watched(), context.interpreter(listener):
        other = threading.Thread(target=lambda: x.array)
        other.start()
        other.join()
    assert not listener.seen


def test_blocks_may_overlap():
    first, second = watched(), watched()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert "__getattribute__" in vars(Tensor)
    second.__exit__()
    assert "__getattribute__" not in vars(Tensor)
