"""A training step as a graph: the same numbers as eager, step after step."""

from __future__ import annotations

import gc
import time
import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture, dead_code
from disttrain.errors import CaptureError

F = nn.functional


def problem(dropout: float = 0.0):
    dt.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
    x, y = dt.randn(10, 6), dt.randint(0, 3, (10,))
    return model, x, y


def make_step(model, optimizer, clip: float | None = None):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.detach()

    return step


OPTIMIZERS = {
    "sgd": lambda p: dt.optim.SGD(p, lr=0.1),
    "momentum": lambda p: dt.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: dt.optim.AdamW(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step_replays_bitwise(name):
    results = []
    for replayed in (False, True):
        model, x, y = problem()
        step = make_step(model, OPTIMIZERS[name](model.parameters()))
        losses = []
        if replayed:
            loss, graph = capture(step)(x, y)
            losses = [loss.item()] + [graph.run(x, y)[0].item() for _ in range(5)]
        else:
            losses = [step(x, y).item() for _ in range(6)]
        results.append((losses, [p.detach().numpy().copy() for p in model.parameters()]))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_clipping_is_part_of_the_graph():
    results = []
    for replayed in (False, True):
        model, x, y = problem()
        step = make_step(model, dt.optim.SGD(model.parameters(), lr=0.5), clip=0.05)
        if replayed:
            _, graph = capture(step)(x, y)
            for _ in range(3):
                graph.run(x * 3, y)
        else:
            step(x, y)
            for _ in range(3):
                step(x * 3, y)
        results.append([p.detach().numpy().copy() for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_graph_reads_as_text_and_verifies():
    model, x, y = problem()
    _, graph = capture(make_step(model, dt.optim.AdamW(model.parameters())))(x, y)
    text = str(graph.verify())
    assert text.startswith("graph(%0: float32[10, 6], %1: int64[10]):")
    assert "float32[10, 8] = linear(%0, c0, c1)" in text
    assert (
        "adam_step!(" in text
        and "cross_entropy" in text
        and text.splitlines()[-1].startswith("  return %")
    )


def test_inputs_of_another_shape_are_refused():
    _, graph = capture(lambda x: x * 2)(dt.ones(3))
    with pytest.raises(CaptureError, match=r"input %0 is float32\[4\]; captured with float32\[3\]"):
        graph.run(dt.ones(4))


def test_dead_code_goes_and_effects_stay():
    buffer = dt.zeros(3)

    def fn(x):
        x.exp()
        buffer.add_(x)
        return x + 1

    _, graph = capture(fn)(dt.ones(3))
    lean = dead_code(graph)
    names = [i.prim.name for i in lean.instructions]
    assert (
        "exp" not in names
        and "assign" in names
        and len(lean.instructions) < len(graph.instructions)
    )
    lean.run(dt.ones(3))
    assert buffer.tolist() == [2.0, 2.0, 2.0]


def test_writes_through_views_replay():
    def fn(x):
        a = x * 1
        a[0] = 7.0
        v = a.view(2, 2)
        v[1].add_(1)
        return a

    x = dt.arange(4.0)
    _, graph = capture(fn)(x)
    np.testing.assert_array_equal(graph.run(x * 2)[0].numpy(), fn(x * 2).numpy())


def test_random_numbers_are_drawn_anew():
    model, x, _ = problem(dropout=0.5)
    with dt.no_grad():
        _, graph = capture(model)(x)
        first, second = graph.run(x)[0], graph.run(x)[0]
    assert not dt.equal(first, second)


def test_reading_a_number_is_refused_with_its_line():
    def fn(x):
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(CaptureError, match=r"test_capture\.py:\d+ in fn"):
        capture(fn)(dt.ones(3))


def test_compile_replays_and_explains_captures():
    model, x, y = problem()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    step = dt.compile(make_step(model, optimizer))
    reference, rx, ry = problem()
    eager = make_step(reference, dt.optim.SGD(reference.parameters(), lr=0.1))
    for _ in range(4):
        assert step(x, y).item() == eager(rx, ry).item()
    assert len(step.graphs) == 2 and "gradients present" in step.explain()
    step(x[:5], y[:5])
    assert len(step.graphs) == 3 and "(5, 6)" in step.explain()


def test_a_changed_learning_rate_is_seen():
    model, x, y = problem()
    optimizer = dt.optim.SGD(model.parameters(), lr=0.1)
    step = dt.compile(make_step(model, optimizer))
    reference, rx, ry = problem()
    other = dt.optim.SGD(reference.parameters(), lr=0.1)
    eager = make_step(reference, other)
    for lr in (0.1, 0.05, 0.05):
        optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = lr
        assert step(x, y).item() == eager(rx, ry).item()
    assert len(step.graphs) == 2


def test_what_cannot_be_captured_runs_eagerly_and_says_so():
    fn = dt.compile(lambda x: x * 2 if x.sum().numpy() > 0 else x)
    with pytest.warns(UserWarning, match="runs eagerly"):
        assert fn(dt.ones(2)).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fn(-dt.ones(2)).tolist() == [-1.0, -1.0]


def test_results_in_a_graph_lead_back():
    w = dt.ones(3, requires_grad=True)
    fn = dt.compile(lambda x: (x * w).sum())
    for _ in range(2):
        fn(dt.ones(3)).backward()
    assert w.grad.tolist() == [2.0, 2.0, 2.0] and len(fn.graphs) == 1


def test_what_the_garbage_collector_calls_is_not_the_steps_own():
    class Litter:
        def __init__(self):
            self.me = self

        def __del__(self):
            ended.append(time.monotonic())
            if going:
                Litter()  # so that every collection finds some

    ended: list[float] = []
    going = [True]
    model, x, y = problem()
    step = dt.compile(make_step(model, dt.optim.SGD(model.parameters(), lr=0.1)))
    before = gc.get_threshold()
    Litter()
    gc.set_threshold(1, 1, 1)
    try:
        losses = [step(x, y).item() for _ in range(4)]  # warnings are errors
    finally:
        gc.set_threshold(*before)
        going.clear()
    assert ended and losses == sorted(losses, reverse=True)


def test_many_kinds_of_calls_leave_the_first_ones_captured():
    step = dt.compile(lambda x: x * 2, dynamic=False)
    inputs = [dt.ones(n) for n in range(1, 41)]
    with pytest.warns(
        UserWarning, match=r"runs eagerly: it was captured 32 times, the last because"
    ):
        for _ in range(2):
            assert [step(x).tolist() for x in inputs] == [(x * 2).tolist() for x in inputs]
    assert len(step.graphs) == 32 and len(step.reasons) == 33 and not step.eager


def test_of_a_call_whose_state_never_settles_no_capture_is_kept():
    state = {"scale": 0}
    step = dt.compile(lambda x: x * state["scale"])
    other = dt.ones(3)
    step(other)
    with pytest.warns(UserWarning, match="captured 32 times"):
        for i in range(40):
            state["scale"] = i
            assert step(dt.ones(2)).tolist() == [i, i]
    assert len(step.eager) == 1 and len(step.graphs) == 1 and step(other).tolist() == [39.0] * 3
