"""Results in the memory of operands that nobody looks at afterwards."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import ORDER, optimize, region


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)


def into(graph):
    """Per kernel, which operand its results go into."""
    prims = [ins.prim for ins in graph.instructions]
    return [p.region.into for p in prims if isinstance(p, region.Fused)]


def run_twice(fn, *args):
    graph = optimize(capture(fn)(*args).graph, ORDER)
    for _ in range(2):
        assert [r.tolist() for r in graph.run(*args)] == [r.tolist() for r in as_tuple(fn(*args))]
    return graph


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def test_what_dies_is_written_over():
    graph = run_twice(lambda x: ((x @ x) * 2).relu() @ x, dt.ones(4, 4))
    assert "over=(0,)" in str(graph) and into(graph) == [[0]]


def test_what_is_given_returned_or_used_again_is_not():
    kept = dt.ones(4, 4)
    assert into(run_twice(lambda x: (x * 2, kept * 2), dt.ones(4, 4))) == []
    assert into(run_twice(lambda x: (y := x @ x, y.relu()), dt.ones(4, 4))) == []
    assert kept.tolist() == [[1.0] * 4] * 4


def test_memory_that_a_view_shows_is_kept():
    def fn(x):
        y = x @ x
        shown = y[1:]
        return (y * 2 - 1).relu() @ shown.T

    graph = run_twice(fn, dt.arange(16.0).reshape(4, 4))
    assert into(graph) in ([[None]], [])


def test_arguments_that_lie_otherwise_are_not_written_over():
    def fn(x):
        return (x.contiguous() * 2).relu() @ x.contiguous()

    graph = optimize(capture(fn)(dt.ones(4, 4).T).graph, ORDER)
    for given in (dt.arange(16.0).reshape(4, 4).T, dt.arange(16.0).reshape(4, 4)):
        before = given.tolist()
        for _ in range(3):
            assert graph.run(given)[0].tolist() == fn(given).tolist() and given.tolist() == before


def test_types_are_kept_apart():
    def fn(x):
        y = x @ x
        return (y > 1).to(dt.float32) + y.to(dt.float64).sum(), y.to(dt.float64) * 2

    graph = run_twice(fn, dt.ones(3, 3))
    for ins in graph.instructions:
        if isinstance(ins.prim, region.Fused):
            for at, out in zip(ins.prim.region.into, ins.outputs, strict=True):
                assert at is None or graph.metas[ins.args[at]] == graph.metas[out]


def test_several_results_take_several_operands():
    def fn(x):
        a, b = x @ x, x @ (x + 1)
        c, d = a * b, a - b
        return c @ x, d @ x

    (each,) = [e for e in into(run_twice(fn, dt.arange(9.0).reshape(3, 3))) if len(e) == 2]
    assert sorted(each) == [0, 1]


def test_threads_do_not_meet():
    step = dt.compile(lambda x: ((x @ x) * 0.5 + 1).relu() @ x)
    inputs = [dt.full((32, 32), i / 8) for i in range(8)]
    wanted = [step.fn(x).tolist() for x in inputs]
    for x in inputs[:3]:
        step(x)
    wrong = []

    def many(i):
        for _ in range(30):
            if step(inputs[i]).tolist() != wanted[i]:
                wrong.append(i)

    threads = [threading.Thread(target=many, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


class Block(dt.nn.Module):
    """A layer of a small GPT."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = dt.nn.LayerNorm(width), dt.nn.LayerNorm(width)
        self.qkv, self.out = dt.nn.Linear(width, 3 * width), dt.nn.Linear(width, width)
        self.up, self.down = dt.nn.Linear(width, 4 * width), dt.nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = [
            p.view(n, length, 4, -1).transpose(1, 2) for p in self.qkv(self.one(x)).chunk(3, 2)
        ]
        y = dt.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.down(dt.nn.functional.gelu(self.up(self.two(x))))


def mlp():
    sizes = [(64, 512), (512, 512), (512, 10)]
    layers = [layer for a, b in sizes for layer in (dt.nn.Linear(a, b), dt.nn.ReLU())]
    return dt.nn.Sequential(*layers[:-1]), (1024, 64)


def cnn():
    layers = [
        *(dt.nn.Conv2d(1, 16, 3, padding=1), dt.nn.ReLU(), dt.nn.MaxPool2d(2)),
        *(dt.nn.Conv2d(16, 32, 3, padding=1), dt.nn.ReLU(), dt.nn.MaxPool2d(2)),
    ]
    return dt.nn.Sequential(*layers, dt.nn.Flatten(), dt.nn.Linear(32 * 49, 10)), (64, 1, 28, 28)


def gpt():
    return dt.nn.Sequential(*[Block(128) for _ in range(2)], dt.nn.Linear(128, 65)), (8, 64, 128)


@pytest.mark.parametrize("make", [mlp, cnn, gpt])
def test_a_training_step_holds_less(make):
    """Beyond parameters and their gradients."""
    model, shape = make()
    x = dt.from_numpy(np.ones(shape, np.float32))
    target = dt.zeros(model(x).numel() // model(x).shape[-1], dtype=dt.int64)
    optimizer = dt.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        y = model(x)
        dt.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), target).backward()
        optimizer.step()

    run = dt.compile(step)
    for _ in range(8):
        run()
    most = []
    for each in (step, run):
        tracemalloc.start()
        each()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        each()
        most.append(tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.stop()
    assert most[1] < 0.7 * most[0], most
