"""What nobody uses goes; writes, draws and checks stay."""

from __future__ import annotations

import pytest

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


NOUGHT, NUMBERS = [1, 0], [0, 9]
REFUSED = {  # what is done, numbers that it takes, numbers that it refuses
    "//": (lambda i: i // i, [1, 2], NOUGHT),
    "%": (lambda i: i % i, [1, 2], NOUGHT),
    "fmod": (lambda i: dt.fmod(i, i), [1, 2], NOUGHT),
    "div": (lambda i: dt.div(i, i, rounding_mode="trunc"), [1, 2], NOUGHT),
    "index": (lambda i: dt.ones(2, 2)[i], [0, 1], NUMBERS),
    "index_select": (lambda i: dt.ones(2, 2).index_select(0, i), [0, 1], NUMBERS),
    "gather": (lambda i: dt.ones(2, 2).gather(0, i.view(1, 2)), [0, 1], NUMBERS),
    "scatter": (lambda i: dt.ones(2, 2).scatter(0, i.view(1, 2), 1.0), [0, 1], NUMBERS),
    "embedding": (lambda i: dt.nn.functional.embedding(i, dt.ones(2, 2)), [0, 1], NUMBERS),
    "one_hot": (lambda i: dt.nn.functional.one_hot(i, 2), [0, 1], NUMBERS),
    "cross_entropy": (lambda i: dt.nn.functional.cross_entropy(dt.ones(2, 2), i), [0, 1], NUMBERS),
    "nll_loss": (lambda i: dt.nn.functional.nll_loss(dt.ones(2, 2), i), [0, 1], NUMBERS),
    "inv": (lambda i: dt.linalg.inv(i.float().diag()), [1, 2], NOUGHT),
    "solve": (lambda i: dt.linalg.solve(i.float().diag(), i.float()), [1, 2], NOUGHT),
    "multinomial": (lambda i: dt.multinomial(i.float(), 1), [1, 2], [1, -1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_though_nobody_uses_it(name):
    run, taken, refused = REFUSED[name]

    def fn(i):
        run(i)
        return i + 1

    step = dt.compile(fn)
    for _ in range(2):
        step(dt.tensor(taken))
    with pytest.raises(Exception) as eager:
        fn(dt.tensor(refused))
    with pytest.raises(type(eager.value)):
        step(dt.tensor(refused))
