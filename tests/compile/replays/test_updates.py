"""Updates of many parameters are one call, and change what single ones do."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.replays.updates import Updates, singly, together
from support.agree import difference

SHAPES = [(3,), (4, 5), (1,), (130, 7), (2, 3)]


def maker(optimizer, change=None, kinds=(dt.float32,)):
    def make():
        dt.manual_seed(0)
        params = [
            dt.randn(*s, dtype=kinds[i % len(kinds)]).requires_grad_() for i, s in enumerate(SHAPES)
        ]
        opt = optimizer(params)

        def step(x):
            opt.zero_grad()
            sum((p.float() * x).square().sum() for p in params).backward()
            opt.step()

        def between(i, run):
            if change is not None:
                change(i, params, opt)
            return run(dt.tensor(0.5 + i))

        def look():
            return [*params, *(s for each in opt.state.values() for s in each.values())]

        return step, between, look

    return make


def groups(step):
    return [x for g in step.graphs for x in g.program.rest if isinstance(x, Updates)]


OPTIMIZERS = {
    "sgd": lambda ps: dt.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: dt.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: dt.optim.AdamW(ps, lr=0.1),
    "amsgrad": lambda ps: dt.optim.Adam(ps, lr=0.1, amsgrad=True),
    "rates": lambda ps: dt.optim.AdamW([{"params": ps[:2]}, {"params": ps[2:], "lr": 0.2}]),
    "moving": lambda ps: dt.optim.NAdam(ps, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kinds", [(dt.float32,), (dt.float64, dt.float32), (dt.bfloat16,)])
def test_the_same_bits(name, kinds):
    assert difference(maker(OPTIMIZERS[name], kinds=kinds), 6) is None


def rescheduled(i, params, opt):
    opt.param_groups[-1]["lr"] = 0.1 / (1 + i)


def recounted(i, params, opt):
    if i == 4:
        opt.state[params[1]]["step"] += 3.0


def replaced(i, params, opt):
    if i == 4:
        params[2].data = params[2].detach() * 2


def turned(i, params, opt):
    if i == 4:
        params[1].data = dt.from_numpy(np.asfortranarray(params[1].detach().numpy()))


@pytest.mark.parametrize("change", [rescheduled, recounted, replaced, turned])
@pytest.mark.parametrize("name", ["adam", "rates", "momentum"])
def test_what_changes_between_calls(change, name):
    if change is recounted and name == "momentum":
        return
    assert difference(maker(OPTIMIZERS[name], change), 8) is None


def test_it_is_one_call():
    step, between, _ = maker(OPTIMIZERS["adam"])()
    run = dt.compile(step)
    for i in range(5):
        between(i, run)
    (found,) = [g for g in groups(run) if g.table[1] is not None]
    assert len(found.steps) == len(SHAPES) and list(singly([found])) == found.steps
    assert len(found.table[0]) == 4 * len(SHAPES)


def test_steps_with_other_numbers_are_apart():
    step, between, _ = maker(OPTIMIZERS["rates"])()
    run = dt.compile(step)
    for i in range(4):
        between(i, run)
    assert sorted(len(g.steps) for g in groups(run)[-2:]) == [2, 3]
    steps = [s for g in groups(run)[-2:] for s in g.steps]
    assert [x.__class__ for x in together(steps[:1])] == [steps[0].__class__]


def test_gradients_that_lie_otherwise_are_done_one_by_one():
    step, between, look = maker(OPTIMIZERS["momentum"])()
    run = dt.compile(step)
    for i in range(4):
        between(i, run)
    (found,) = [g for g in groups(run) if g.table[1] is not None]
    arrays = [t.array for t in look()]
    params, state = arrays[: len(SHAPES)], arrays[len(SHAPES) :]
    gradients = [np.ones_like(p) for p in params]
    gradients[1] = np.asfortranarray(gradients[1])
    before = [p.copy() for p in params]
    written = [a for pair in zip(params, state, strict=True) for a in pair]
    found.forward(*gradients, *written)
    assert all((p != b).all() for p, b in zip(params, before, strict=True))


def test_threads_replay_with_their_own_tables():
    made = [maker(OPTIMIZERS["adam"])() for _ in range(4)]
    alone = [maker(OPTIMIZERS["adam"])() for _ in range(4)]
    errors = []

    def go(step, between):
        try:
            run = dt.compile(step)
            for i in range(30):
                between(i, run)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=m[:2]) for m in made]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for step, between, _ in alone:
        for i in range(30):
            between(i, step)
    assert not errors
    for a, b in zip(made, alone, strict=True):
        assert [t.detach().numpy().tobytes() for t in a[2]()] == [
            t.detach().numpy().tobytes() for t in b[2]()
        ]
