"""What is made of constants is a constant; what a caller could write to, or see, is not."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import dead_code, fold_constants


def folded(fn, *args):
    graph = capture(fn)(*args)[1]
    return dead_code(fold_constants(graph)), graph


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def test_what_is_computed_from_constants_is_computed_once():
    lean, graph = folded(lambda x: x + (dt.ones(3) * 5).sqrt(), dt.arange(3.0))
    assert names(graph)[-1] == "add" and len(names(graph)) > 1
    assert names(lean) == ["add"]
    assert np.array_equal(lean.run(dt.ones(3))[0].numpy(), 1 + np.sqrt(np.full(3, 5, np.float32)))
    assert "sqrt of constants" in str(lean)


def test_what_the_program_hands_on_is_new_in_each_run():
    lean, _ = folded(lambda x: (x * 1.5, dt.ones(3) * 5), dt.ones(3))
    first, second = lean.run(dt.ones(3))[1], lean.run(dt.ones(3))[1]
    first.add_(1.0)
    assert second.tolist() == [5.0, 5.0, 5.0]


def test_what_is_written_to_is_made_anew():
    def fn(x):
        made = dt.ones(3) * 5
        made.add_(x)
        return made.sum()

    lean, _ = folded(fn, dt.ones(3))
    assert [lean.run(dt.ones(3))[0].item() for _ in range(3)] == [18.0] * 3


def test_parameters_are_no_constants():
    weight = dt.ones(3)
    lean, _ = folded(lambda x: x + weight * 5, dt.ones(3))
    weight.fill_(2.0)
    assert lean.run(dt.ones(3))[0].tolist() == [11.0] * 3


def test_large_results_of_small_constants_stay_as_they_are_made():
    def fn(x):
        return (x + dt.ones(1).expand(400, 400).contiguous() * 2).sum()

    lean, _ = folded(fn, dt.ones(400, 400))
    assert "mul" in names(lean)  # 640 KB are not kept for what four bytes make
