"""Nodes of the graph: what they show, and when they refuse."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import AutogradError


def test_nodes_show_their_operation_and_what_comes_next():
    x = dt.ones(2).requires_grad_()
    y = (x * 2).exp()
    assert y.grad_fn.name() == "ExpBackward0" == type(y.grad_fn).__name__
    ((before, number),) = y.grad_fn.next_functions
    assert before.name() == "MulBackward0" and number == 0
    leaf = before.next_functions[0][0]
    assert leaf.variable is x and "AccumulateGrad" in leaf.name()


def test_a_node_is_run_once_unless_it_is_retained():
    x = dt.ones(2).requires_grad_()
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(AutogradError, match="second time"):
        y.backward()
    assert x.grad.tolist() == pytest.approx([2 * 2.7182817] * 2)


def test_a_saved_value_that_changed_is_told():
    x = dt.ones(2).requires_grad_()
    y = x.exp()
    z = y * y
    y.detach().zero_()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        z.sum().backward()


def test_hooks_before_and_after():
    x, seen = dt.ones(2).requires_grad_(), []
    y = x * 3
    y.grad_fn.register_prehook(lambda gs: seen.append(("before", gs[0].tolist())))
    y.grad_fn.register_hook(lambda ins, outs: seen.append(("after", ins[0].tolist())))
    y.sum().backward()
    assert seen == [("before", [1.0, 1.0]), ("after", [3.0, 3.0])]


def test_metadata_is_kept():
    node = (dt.ones(1).requires_grad_() * 2).grad_fn
    node.metadata["mark"] = 1
    assert node.metadata == {"mark": 1}
