"""What nobody uses goes; writes, draws and checks stay."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import capture, dead_code


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def test_what_nobody_uses_is_dropped_with_all_that_led_to_it():
    def fn(x):
        (x * 3).exp().sum()
        return x + 1

    graph = capture(fn)(dt.ones(2))[1]
    assert names(dead_code(graph)) == ["add"]


def test_writes_stay_with_what_they_write():
    kept = dt.zeros(2)

    def fn(x):
        kept.add_(x * 2)
        dt.rand(2)
        return x - 1

    graph = dead_code(capture(fn)(dt.ones(2))[1])
    found = names(graph)
    assert found[:2] == ["mul", "iadd_"] or "mul" in found
    before = dt.get_rng_state().tolist()
    graph.run(dt.ones(2))
    assert dt.get_rng_state().tolist() != before  # the draw still moves the generator
    assert kept.tolist() == [4.0, 4.0]  # by the capture, and by the run


def test_an_empty_program_stays_one():
    graph = capture(lambda x: x)(dt.ones(2))[1]
    assert dead_code(graph).instructions == ()
