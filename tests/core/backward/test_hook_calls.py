"""Calling hooks during a walk: in which order, on what, and what they may give back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.backward.hook_calls import (
    check_nan,
    run_accumulate_hooks,
    run_post_hooks,
    run_pre_hooks,
    run_tensor_hooks,
)
from disttrain.core.node import AccumulateGrad, GraphNode
from disttrain.core.tensor import Tensor
from disttrain.errors import AnomalyError, AutogradError


def walk(tensors=False):
    return SimpleNamespace(tensors=tensors, lent=set())


def numbers(*values):
    return np.array(values, np.float32)


def test_hooks_of_a_tensor_run_in_their_order_each_on_what_the_last_one_gave():
    node, here, seen = GraphNode(), walk(), []
    node.add_tensor_hook(lambda g: seen.append(g.tolist()))
    node.add_tensor_hook(lambda g: g * 2)
    node.add_tensor_hook(lambda g: seen.append(g.tolist()))
    got = run_tensor_hooks(here, node, numbers(1, 2))
    assert seen == [[1, 2], [2, 4]] and type(got) is np.ndarray and got.tolist() == [2, 4]
    assert node in here.lent, "a hook may keep what it sees"


def test_in_a_recorded_walk_gradients_stay_tensors():
    node = GraphNode()
    node.add_tensor_hook(lambda g: g + 1)
    got = run_tensor_hooks(walk(True), node, dt.ones(2))
    assert isinstance(got, Tensor) and got.tolist() == [2, 2]


def test_each_output_has_hooks_of_its_own():
    node, seen = GraphNode(), []
    node.add_tensor_hook(lambda g: seen.append(g), 0)
    node.add_tensor_hook(lambda g: g * 10, 1)
    got = run_tensor_hooks(walk(), node, [None, numbers(3)])
    assert seen == [None] and got[0] is None and got[1].tolist() == [30]


def test_a_retained_gradient_is_that_after_all_hooks_and_a_copy():
    node, kept = GraphNode(), dt.zeros(2)
    node.retain(kept)
    node.add_tensor_hook(lambda g: g * 3)
    got = run_tensor_hooks(walk(), node, numbers(1, 2))
    assert kept.grad.tolist() == [3, 6] and not np.shares_memory(kept.grad.numpy(), got)
    run_tensor_hooks(walk(), node, numbers(1, 1))
    assert kept.grad.tolist() == [6, 9]
    del kept
    assert run_tensor_hooks(walk(), node, numbers(1)).tolist() == [3]


@pytest.mark.parametrize(
    "gives, text",
    [
        (lambda g: g.sum(), r"has changed the size of value: it returned .* of shape \[\]"),
        (lambda g: g.double(), "has changed the type of value"),
        (lambda g: 3.0, r"returned a float; a tensor hook returns None or .* shape \[2\]"),
    ],
)
def test_what_a_hook_gives_must_be_as_what_it_got(gives, text):
    node = GraphNode()
    node.add_tensor_hook(gives)
    with pytest.raises(AutogradError, match=text):
        run_tensor_hooks(walk(), node, numbers(1, 2))


def test_no_gradient_cannot_become_one():
    node = GraphNode()

    def wrong(g):
        return dt.ones(2)

    node.add_tensor_hook(wrong)
    with pytest.raises(AutogradError, match="hook 'wrong': can't replace a None gradient"):
        run_tensor_hooks(walk(), node, None)


def test_hooks_before_a_node_may_give_other_gradients():
    node, seen = GraphNode(), []
    node.register_prehook(lambda gs: seen.append([g.tolist() for g in gs]))
    node.register_prehook(lambda gs: (gs[0] * 2,))
    assert run_pre_hooks(walk(), node, numbers(1, 2)).tolist() == [2, 4] and seen == [[[1, 2]]]
    several = GraphNode()
    several.register_prehook(lambda gs: (gs[1], gs[0]))
    first, second = run_pre_hooks(walk(), several, (numbers(1), numbers(2)))
    assert (first.tolist(), second.tolist()) == ([2], [1])
    one = GraphNode()
    one.register_prehook(lambda gs: gs[0] * 5)  # a tensor alone stands for a tuple of it
    assert run_pre_hooks(walk(), one, numbers(1)).tolist() == [5]


def test_hooks_after_a_node_see_both_sides():
    node, seen = GraphNode(), []
    node.register_hook(lambda inputs, outputs: seen.append((inputs[1], outputs[0].tolist())))
    node.register_hook(lambda inputs, outputs: (inputs[0] * 2, None))
    got = run_post_hooks(walk(), node, (numbers(1), None), numbers(7))
    assert seen == [(None, [7])] and got[0].tolist() == [2] and got[1] is None


def test_a_wrong_number_of_values_is_refused():
    node = GraphNode()
    node.register_hook(lambda inputs, outputs: inputs[:1])
    with pytest.raises(AutogradError, match=r"incorrect number of values .got 1, but expected 2."):
        run_post_hooks(walk(), node, (numbers(1), numbers(2)), numbers(7))
    before = GraphNode()
    before.register_prehook(lambda gs: (gs[0], gs[0]))
    with pytest.raises(AutogradError, match="got 2, but expected 1"):
        run_pre_hooks(walk(), before, numbers(1))


def test_a_hook_that_takes_itself_away_is_called_once():
    node, calls = GraphNode(), []

    def once(g):
        calls.append(1)
        handle.remove()

    handle = node.add_tensor_hook(once)
    run_tensor_hooks(walk(), node, numbers(1))
    run_tensor_hooks(walk(), node, numbers(1))
    assert calls == [1]


def test_hooks_of_a_leaf_run_without_a_gradient_too():
    x, seen = dt.ones(1, requires_grad=True), []
    acc = AccumulateGrad(x)
    acc.add_post_hook(lambda t: seen.append(t.grad))
    run_accumulate_hooks(acc)
    x.requires_grad_(False)
    run_accumulate_hooks(acc)
    assert seen == [None]


def test_nan_is_found_with_its_place():
    node = GraphNode()
    node.site = "train.py:3 in loss"
    check_nan(node, (numbers(1, np.inf), None, np.array([1]), dt.ones(1)))
    text = "Function 'GraphNode' returned nan values in its 1th output.*ran at train.py:3"
    for bad in (numbers(1, np.nan), dt.tensor([np.nan]), np.array([complex(0, np.nan)])):
        with pytest.raises(AnomalyError, match=text):
            check_nan(node, (None, bad))


def test_nan_on_a_device_is_found(double):
    with pytest.raises(AnomalyError, match="0th output"):
        check_nan(GraphNode(), (dt.tensor([float("nan")], device="cuda").array,))
