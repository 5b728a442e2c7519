"""The words of ``compile``: modes, backends, and functions of the program's own that run graphs."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile.passes import FAST, NONE, ORDER, recomputing
from disttrain.compile.settings import settings_of
from disttrain.errors import CaptureError


def settings(backend="inductor", mode=None, options=None, fast_math=False):
    return settings_of(False, backend, mode, options, fast_math)


def test_words_and_what_they_mean():
    assert settings().passes is ORDER and settings("llvm").passes is ORDER
    assert settings("eager").passes is NONE and settings(fast_math=True).passes is FAST
    assert not settings().recorded and settings(mode="reduce-overhead").recorded
    assert settings("cudagraphs").recorded
    assert settings(options={"triton.cudagraphs": True}).recorded
    budget = {"activation_memory_budget": 0.5}
    assert settings(options=budget).passes == recomputing(0.5, ORDER)
    assert settings("eager", options=budget).passes is NONE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mode": "fastest"}, "Unrecognized mode=fastest"),
        ({"backend": "bogus"}, "Invalid backend: 'bogus'.*function of your own"),
        ({"backend": 3}, "Invalid backend: 3"),
        ({"options": {"activation_memory_budget": 2}}, "budget=2 given; a share between 0 "),
        ({"options": {"activation_memory_budget": "x"}}, "budget='x' given; a share"),
        ({"mode": "default", "options": {}}, "both can't be specified"),
    ],
)
def test_words_without_a_meaning_are_refused(words, message):
    with pytest.raises(CaptureError, match=message):
        settings(**words)


def test_a_backend_of_ones_own_gets_the_graph_and_runs_it():
    seen, runs = [], []

    def backend(gm, example_inputs):
        seen.append((str(gm.graph), [tuple(x.shape) for x in example_inputs]))

        def run(*inputs):
            runs.append(len(inputs))
            return gm.forward(*inputs)

        return run

    step = dt.compile(lambda x: (x * 2).sum(), backend=backend)
    assert [step(dt.full((3,), float(i))).item() for i in range(4)] == [0.0, 6.0, 12.0, 18.0]
    ((text, shapes),) = seen
    assert "mul(%0, 2.0)" in text and shapes == [(3,)] and runs == [1, 1, 1]


def test_a_graph_itself_is_something_to_call():
    model = nn.Linear(3, 2)
    run = dt.compile(model, backend=lambda gm, inputs: gm)
    x = dt.randn(4, 3)
    for _ in range(3):
        model.zero_grad()
        run(x).sum().backward()
        found = model.weight.grad.tolist()
    model.zero_grad()
    model(x).sum().backward()
    assert found == model.weight.grad.tolist()


def test_what_a_backend_makes_is_checked():
    with pytest.raises(CaptureError, match="the backend returned NoneType"):
        dt.compile(lambda x: x + 1, backend=lambda gm, inputs: None)(dt.ones(1))
    run = dt.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *given: ())
    run(dt.ones(1))
    with pytest.raises(CaptureError, match="gives 0 results; the graph has 1"):
        run(dt.ones(1))


def test_fast_math_fuses_exponentials_within_some_last_bits():
    def fn(x):
        return (x.exp() + 1).log() * x.sigmoid()

    run, x = dt.compile(fn, fast_math=True), dt.randn(50, 7)
    for _ in range(9):
        got = run(x)
    assert "fused[exp, add, log, sigmoid, mul]" in str(run.graphs[0])
    np.testing.assert_allclose(got.numpy(), fn(x).numpy(), rtol=3e-6)
    exact = dt.compile(fn)
    exact(x)
    assert exact(x).numpy().tobytes() == fn(x).numpy().tobytes()


def test_compiling_twice_gives_the_second_settings():
    once = dt.compile(lambda x: x + 1)
    twice = dt.compile(once, fullgraph=True)
    assert twice.settings.fullgraph and not once.settings.fullgraph and twice.fn is once.fn
