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
