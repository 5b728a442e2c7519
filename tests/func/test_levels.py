"""Levels of interpretation: what is above what, what is refused, what a tape wants."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import context, func
from disttrain.core.node import AccumulateGrad
from disttrain.errors import CaptureError
from disttrain.func import levels
from disttrain.func.levels import Level, followed, innermost, leave_private


def test_a_level_is_on_the_stack_while_it_runs_and_over_afterwards():
    outer, inner = Level(), Level()
    assert innermost() is None
    with outer.running():
        with inner.running():
            assert (outer.level, inner.level) == (0, 1) and innermost() is inner
            with outer.below():
                assert innermost() is None
            with inner.below():
                assert innermost() is outer
            assert innermost() is inner
        assert inner.over and not outer.over and innermost() is outer
    assert outer.over and innermost() is None and not context.thread.stack


def test_the_stack_comes_back_after_an_error():
    level = Level()
    with pytest.raises(ZeroDivisionError), level.running():
        try:
            with level.below():
                1 / 0
        finally:
            assert innermost() is level
    assert innermost() is None and level.over


def test_interpreters_that_watch_are_no_levels():
    class Watch:
        dynamic = True

        def process(self, prim, args, params, proceed):
            return proceed(prim, args, params)

    level = Level()
    with level.running(), context.interpreter(Watch()):
        assert innermost() is level


def test_what_a_level_must_say_itself():
    level, prim = Level(), dt.mul
    assert str(level) == "transform (level 0)" and not level.owns(dt.ones(1))
    calls = (
        lambda: level.lift(dt.ones(1)),
        lambda: level.process(prim, (), {}),
        lambda: level.apply_function(object, (), {}),
        lambda: level.detached(None),
    )
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()


def test_values_do_not_outlive_their_function():
    kept = []
    func.vmap(lambda x: kept.append(x) or x * 2)(dt.ones(3))
    with pytest.raises(CaptureError, match=r"a value from inside .* is used after the transform"):
        kept[0] + 1


def test_writes_to_the_world_outside_are_refused():
    outside = dt.zeros(2)
    with pytest.raises(RuntimeError, match="vmap"):
        func.vmap(lambda x: outside.add_(x))(dt.ones(3, 2))
    assert outside.tolist() == [0.0, 0.0]


def test_a_tape_outside_wants_what_depends_on_its_leaves():
    x, own = dt.ones(2, requires_grad=True), dt.ones(2, requires_grad=True)
    assert followed([x * 2], []) and not followed([own * 2], [own])
    assert followed([own * x], [own]) and not followed([dt.ones(1), 3, "x"], [])
    low, high = (own * 2).unbind(0)
    assert not followed([low, high], [own])
    private = dt.ones(1, requires_grad=True)
    leave_private([private, dt.ones(1)])
    assert not followed([private * 2], []) and private.graph_node().__class__ is AccumulateGrad


def test_transforms_inside_of_each_other_keep_their_gradients():
    x = dt.tensor(3.0, requires_grad=True)
    y = func.grad(lambda t: t**3 * x)(dt.tensor(2.0))
    assert y.item() == pytest.approx(36.0) and y.requires_grad  # the tape outside follows x
    y.backward()
    assert x.grad.item() == pytest.approx(12.0)
    assert not func.grad(lambda t: t**3)(dt.tensor(2.0)).requires_grad
    second = func.grad(lambda t: func.grad(lambda s: s**3 * t)(t))(dt.tensor(2.0))
    assert second.item() == pytest.approx(9 * 2.0**2)


def test_views_are_brought_up_to_date_before_they_leave():
    def write(x):
        y = x * 1
        head = y[:1]
        y.mul_(2.0)
        return levels.settle({"head": head, "all": y})

    found = func.vmap(write)(dt.arange(4.0).reshape(2, 2))
    assert found["head"].tolist() == [[0.0], [4.0]] and found["all"].tolist() == [[0, 2], [4, 6]]
