"""Bodies shortened by the compiler's passes give the same bits."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.compile.bodies import shorten
from disttrain.func.staging import stage

F = ((4, 5), np.dtype("float32"))


def test_fewer_steps_and_the_same_bits():
    def fn(a, b):
        c = dt.ones(5) * 3
        return dt.tanh(a * 2 + b).relu() + (a * 2 + b) * 1.0, (a * b).sum(), c + a

    long = stage(fn, [F, F], closed=True).body
    short = shorten(long)
    assert len(short.steps) < len(long.steps)
    arrays = [dt.rand(4, 5).array, dt.rand(4, 5).array]
    for _ in range(10):  # (kernels are made after some runs)
        for one, two in zip(long.run()(arrays), short.run()(arrays), strict=True):
            assert one.tobytes() == two.tobytes()
