"""Which dimensions are symbols: by themselves, asked for, marked; and what is kept for sizes."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compile.sizes import dynamic
from disttrain.errors import CaptureError


def double(x):
    return x * 2 + x.shape[0]


def counts(run, *inputs):
    found = []
    for x in inputs:
        assert dt.equal(run(x), double(x))
        found.append(len(run.reasons))
    return found


def ones(*sizes):
    return [dt.ones(*size) for size in sizes]


def test_the_second_size_of_a_dimension_makes_it_a_symbol():
    run = dt.compile(double)
    inputs = ones((3, 4), (5, 4), (6, 4), (6, 7), (8, 9), (2, 2))
    assert counts(run, *inputs) == [1, 2, 2, 3, 3, 3]
    assert "s0 is size 0 of tensor 0, s1 is size 1 of tensor 0" in run.explain()


def test_dynamic_takes_all_sizes_at_once_but_0_and_1():
    run = dt.compile(double, dynamic=True)
    assert counts(run, *ones((3, 4), (5, 6), (1, 6), (1, 8), (9, 1), (0, 4))) == [1, 1, 2, 2, 3, 4]


def test_static_captures_each():
    run = dt.compile(double, dynamic=False)
    inputs = ones((3, 4), (5, 4), (6, 4))
    dynamic.mark_dynamic(inputs[0], 0)
    assert counts(run, *inputs) == [1, 2, 3]


def test_other_types_and_numbers_of_dimensions_are_other_forms():
    run = dt.compile(double)
    kinds = [dt.ones(3), dt.ones(4), dt.ones(3, dtype=dt.float64), dt.ones(2, 3), dt.ones(7)]
    assert counts(run, *kinds) == [1, 2, 3, 4, 4]


def test_marks():
    run = dt.compile(double)
    x, y, z = ones((3, 4), (5, 4), (3, 9))
    dynamic.mark_dynamic(x, 0)
    assert counts(run, x, y) == [1, 1]
    run = dt.compile(double)
    dynamic.maybe_mark_dynamic(x, [1])
    assert counts(run, x, z, y) == [1, 1, 1]
    run = dt.compile(double)
    for t in (x, y, z):
        dynamic.mark_static(t, 0)
    assert counts(run, *ones((3, 4), (4, 4)), y) == [1, 2, 2]  # (captures that there are serve)
    run = dt.compile(double)
    assert counts(run, y, x) == [1, 2]


def test_a_marked_dimension_that_the_program_needs_as_a_number_is_an_error():
    def f(x):
        return x * 2 if x.shape[0] == 3 else x

    x = dt.ones(3, 4)
    dynamic.mark_dynamic(x, 0)
    with pytest.raises(CaptureError, match=r"dimension 0 of argument 0 is marked as dynamic"):
        dt.compile(f)(x)
    y = dt.ones(3, 4)
    dynamic.maybe_mark_dynamic(y, 0)
    assert dt.equal(dt.compile(f)(y), y * 2)


def test_a_mark_on_a_dimension_that_is_not_there():
    with pytest.raises(CaptureError, match="dimension 2"):
        dynamic.mark_dynamic(dt.ones(3, 4), 2)


def test_arguments_that_share_memory_are_captured_for_each_size():
    run = dt.compile(lambda x, y: x.mul_(2) + y, dynamic=True)
    for n in (3, 5, 7):
        x = dt.ones(n)
        assert dt.equal(run(x, x), dt.full((n,), 4.0))
    assert len(run.reasons) == 3


def test_a_hundred_lengths_take_three_captures_and_fullgraph_takes_them():
    model = dt.nn.Sequential(dt.nn.Linear(4, 8), dt.nn.ReLU(), dt.nn.Linear(8, 4))
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)

    @dt.compile(fullgraph=True)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for n in range(2, 102):
        step(dt.ones(n % 7 + 2, n, 4))
    assert len(step.reasons) <= 3
    assert "guarded" not in step.explain()


def test_what_is_kept_ready_for_sizes_is_bounded(monkeypatch):
    monkeypatch.setattr(dynamic, "MOST", 4)
    run = dt.compile(double, dynamic=True)
    assert set(counts(run, *ones(*((n, 3) for n in range(2, 20))))) == {1}
    assert len(run.entries) <= 5


def test_a_capture_that_does_not_stand_any_more_is_made_again_for_all_sizes():
    scale = [1.0]
    run = dt.compile(lambda x: x * scale[0])
    for value in (1.0, 2.0):
        scale[0] = value
        for n in (3, 4, 5, 6, 3):
            assert dt.equal(run(dt.ones(n)), dt.full((n,), value))
    assert len(run.reasons) == 3


def test_state_that_goes_to_and_fro_keeps_its_captures():
    layer = dt.nn.BatchNorm1d(3)
    run = dt.compile(lambda x: layer(x))
    for _ in range(3):
        for mode in (True, False):
            layer.train(mode)
            for n in (4, 5, 6, 7):
                run(dt.randn(n, 3))
    assert len(run.reasons) <= 4


# --- plain numbers among the arguments ----------------------------------------------------------
NUMBERS: dict[str, tuple] = {
    "factor": (lambda x, n: x * n, 2),
    "share": (lambda x, n: (x / n + n) ** 2 - n, 2),
    "rows": (lambda x, n: x[:n] if n < 3 else x[:-1] * n, 3),
    "returned": (lambda x, n: x.sum() + (n + 1), 2),
    "size": (lambda x, n: dt.ones(n) * x[0], 2),
    "weight": (lambda x, n: dt.nn.functional.leaky_relu(x, n / 100), 2),
}
FLOATS = [2.5, 1.0, -0.0, 0.0, float("inf"), float("nan"), 1e-30, -3.0, 2.5]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_plain_number_that_changes_is_a_symbol(name, dynamic):
    fn, most = NUMBERS[name]
    run = dt.compile(fn, dynamic=dynamic)
    x = dt.tensor([1.0, -2.0, 3.0, 0.5])
    for n in (5, 6, 7, 8, 9, 10, 2, 3, 11, 5):
        for _ in range(2):
            assert dt.equal(run(x, n), fn(x, n))
    assert len(run.graphs) <= most, run.explain()
    assert "is plain number 0 of the call" in run.explain()


@pytest.mark.filterwarnings("ignore:.*captured anew for each")
@pytest.mark.parametrize("number", [abs, float.is_integer, lambda s: -s, lambda s: s if s else 5.0])
def test_floats_keep_their_bits_and_what_is_decided_by_them(number):
    def fn(x, s):
        return x * number(s), s

    run = dt.compile(fn)
    x = dt.tensor([1.0, -2.0, 0.0])
    for s in FLOATS + FLOATS:
        (found, back), (expected, _) = run(x, s), fn(x, s)
        assert found.numpy().tobytes() == expected.numpy().tobytes() and repr(back) == repr(s)


def test_numbers_and_sizes_change_together_and_what_is_mapped_by_them_does_not():
    def fn(x, how, *, table):
        return x * how["scale"] + len(x) * table[how["kind"]]

    run, table = dt.compile(fn), {2: 1.0, 3: 5.0}
    for size, scale, kind in ((4, 1.5, 2), (5, 2.5, 2), (6, 3.5, 2), (7, 4.5, 3), (8, 5.5, 3)):
        x = dt.ones(size)
        how = {"scale": scale, "kind": kind}
        assert dt.equal(run(x, how, table=table), fn(x, how, table=table))
    assert len(run.graphs) <= 4, run.explain()


def test_a_step_with_scheduled_numbers_is_captured_twice():
    dt.manual_seed(0)
    models = [dt.nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def step(model, x, rate, index):
        loss = (model(x) * (index + 1)).square().mean()
        loss.backward()
        with dt.no_grad():
            for p in model.parameters():
                p -= rate * p.grad
                p.grad = None
        return loss

    run = dt.compile(lambda x, rate, index: step(models[1], x, rate, index))
    for i in range(2, 30):
        x = dt.randn(4, 3)
        expected, found = step(models[0], x, 0.1 / i, i), run(x, 0.1 / i, i)
        assert dt.equal(expected, found)
    assert len(run.graphs) == 2, run.explain()
    assert dt.equal(models[0].weight, models[1].weight)
