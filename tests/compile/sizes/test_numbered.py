"""Numbers that each call gives: replays take them, and no capture is made anew for them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.sizes import dynamic

FLOATS = [0.5, 1.0, 0.0, -0.0, 2.5, -3.0, float("inf"), float("nan"), 1e-30, 2.5]


def bits(x):
    if isinstance(x, dt.Tensor):
        return x.detach().numpy().tobytes()
    return [bits(y) for y in x] if isinstance(x, (tuple, list)) else repr(x)


def opened(run):
    return [one for found in run.forms.open.values() for one in found]


PROGRAMS = {
    "operand": lambda x, s: (x * s + 1).relu(),
    "twice": lambda x, s: (x * s - s, s),
    "made of it": lambda x, s: x * (s * 2 + 1) + len(x) * s,
    "result alone": lambda x, s: (x + 1, s, s * 2),
    "in place": lambda x, s: x.clone().mul_(s).add_(1.0),
    "power": lambda x, s: x.abs() ** s,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_are_given_to_one_replay(name):
    fn = PROGRAMS[name]
    run, x = dt.compile(fn), dt.arange(12.0).reshape(3, 4) - 4
    for s in FLOATS * 3:
        assert bits(run(x, s)) == bits(fn(x, s)), s
    assert len(run.graphs) <= 4, run.explain()
    for rows in (3, 4, 5, 6, 5):
        for s in FLOATS:
            y = dt.ones(rows, 4)
            assert bits(run(y, s)) == bits(fn(y, s)), (rows, s)


def test_a_number_that_changes_makes_no_program_anew(monkeypatch):
    run, x = dt.compile(lambda x, s: x * s + 1), dt.ones(3)
    for s in (1.5, 2.5, 3.5):
        run(x, s)
    (one,) = opened(run)
    monkeypatch.setattr(dynamic.General, "made", None)
    for i in range(100):
        assert run(x, i + 0.25).tolist() == [i + 1.25] * 3
    assert opened(run) == [one] and len(run.graphs) == 2 and len(run.entries) == 2


def test_a_counter_and_a_rate_are_given_together():
    model = dt.nn.Linear(3, 2)

    def step(x, rate, i, how):
        loss = (model(x) * how["scale"]).square().mean() * (i + 1)
        loss.backward()
        with dt.no_grad():
            for p in model.parameters():
                p -= rate * p.grad
                p.grad = None
        return loss, i

    run, losses = dt.compile(step), []
    start = {k: v.clone() for k, v in model.state_dict().items()}
    for fn in (step, run):
        model.load_state_dict(start)
        found = []
        for i in range(1, 30):
            x = dt.arange(3.0 * (2 + i % 3)).reshape(-1, 3) / 9
            found.append(bits(fn(x, 0.1 / i, i, {"scale": 1 + i / 100})))
        losses.append(found)
    assert losses[0] == losses[1]
    assert len(run.graphs) <= 5, run.explain()


def test_numbers_that_decide_are_guarded():
    fn = lambda x, s: x * s if s > 2 else x - s
    run, x = dt.compile(fn), dt.ones(3)
    for s in (1.5, 2.5, 3.5, 0.5, 7.5, 1.25, 2.0, float("nan"), 2.5):
        assert bits(run(x, s)) == bits(fn(x, s))
    assert len(run.graphs) <= 4, run.explain()


def test_numbers_that_are_more_than_operands_stay_sizes():
    fn = lambda x, n, s: x[:n] * s + dt.zeros(n)
    run, x = dt.compile(fn), dt.ones(9)
    for n, s in ((2, 0.5), (3, 1.5), (4, 2.5), (4, 3.5), (3, 4.5), (5, 5.5), (1, 6.5), (0, 7.5)):
        assert bits(run(x, n, s)) == bits(fn(x, n, s))
    assert run.forms.free == {1}
    clamp = dt.compile(lambda x, s: x.clamp(max=s))
    for s in FLOATS:
        assert bits(clamp(x, s)) == bits(x.clamp(max=s))


def test_gradients_through_what_is_given_numbers():
    fn = lambda x, s: (x * s).sin() + s
    run = dt.compile(fn)
    for s in (0.5, 1.5, 2.5, 3.5, 0.25):
        found = []
        for f in (fn, run):
            x = dt.arange(4.0).requires_grad_()
            y = f(x, s)
            y.sum().backward()
            found.append((bits(y), bits(x.grad)))
        assert found[0] == found[1]


def test_state_that_changes_meanwhile_is_seen():
    class Scale:
        by = 2.0

    scale = Scale()
    fn = lambda x, s: x * s * scale.by
    run, x = dt.compile(fn), dt.ones(3)
    for i in range(12):
        scale.by = 2.0 + i // 4
        assert bits(run(x, i + 0.5)) == bits(fn(x, i + 0.5))


def test_threads_have_numbers_of_their_own():
    run, x, wrong = dt.compile(lambda x, s: (x * s + s).sum()), dt.ones(64), []
    for s in (0.5, 1.5, 2.5):
        run(x, s)

    def work(k):
        for i in range(200):
            s = k * 1000 + i + 0.5
            if run(x, s).item() != np.float32(128) * np.float32(s):
                wrong.append(s)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_kinds_of_calls_that_are_kept_ready_are_limited(monkeypatch):
    monkeypatch.setattr(dynamic, "MOST", 4)
    run = dt.compile(lambda x, s: x * s)
    for rows in range(2, 20):
        for s in (0.5, 1.5):
            assert run(dt.ones(rows), s).tolist() == [s] * rows
    assert len(run.forms.open) <= 4
