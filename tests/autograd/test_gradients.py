"""dt.autograd.grad: one gradient for each input, and a batch of cotangents in one walk."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd import grad
from disttrain.errors import AutogradError, ShapeError


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_batch_of_cotangents(create_graph):
    x, unused = leaf(1.0, 2.0, 3.0), leaf(1.0)
    rows, nothing = grad(
        x**2, (x, unused), dt.eye(3), is_grads_batched=True, allow_unused=True,
        create_graph=create_graph,
    )  # fmt: skip
    assert rows.tolist() == dt.diag(dt.tensor([2.0, 4.0, 6.0])).tolist() and nothing is None
    if create_graph:
        assert grad(rows.sum(), x)[0].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(AutogradError, match="needs grad_outputs"):
        grad(x.sum(), x, is_grads_batched=True)


def test_gradients_come_by_input_and_leave_grad_alone():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gx, gy = grad((x * y).sum(), (x, y))
    assert gx.tolist() == [3.0, 4.0] and gy.tolist() == [1.0, 2.0] and x.grad is y.grad is None
    (both,) = grad([x * 2, x * y], x, [dt.ones(2), dt.tensor([1.0, 10.0])])
    assert both.tolist() == [5.0, 42.0]


def test_inputs_that_are_not_used():
    x, unused = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match=r"not have been used|unused"):
        grad(x * 2, (x, unused))
    assert grad(x * 2, (x, unused), allow_unused=True)[1] is None
    assert grad(x * 2, (x, unused), materialize_grads=True)[1].tolist() == [0.0]


def test_a_batch_for_several_outputs_is_one_row_for_each_example():
    x = leaf(1.0, 2.0)
    seeds = (dt.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), dt.tensor([0.0, 0.0, 10.0]))
    (rows,) = grad((x**2, x.sum()), x, seeds, is_grads_batched=True)
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0], [12.0, 14.0]]


def test_unused_inputs_of_a_batch_are_zeros_where_they_are_asked_for():
    x, unused = leaf(1.0, 2.0), leaf(5.0)
    rows, nothing = grad(
        x * x, (x, unused), dt.eye(2), is_grads_batched=True, materialize_grads=True
    )
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0]] and nothing.tolist() == [[0.0], [0.0]]


def test_the_graph_stays_where_it_is_asked_to():
    x = leaf(1.0, 2.0)
    y = x * x
    grad(y, x, dt.eye(2), is_grads_batched=True, retain_graph=True)
    grad(y, x, dt.eye(2), is_grads_batched=True)
    with pytest.raises(AutogradError):
        grad(y, x, dt.eye(2), is_grads_batched=True)


@pytest.mark.parametrize("seed", [dt.ones(2), dt.ones(3, 3), dt.tensor(1.0)])
def test_a_batch_of_another_shape_is_refused(seed):
    x = leaf(1.0, 2.0)
    with pytest.raises(ShapeError, match=r"expected to match the shape of its output, \[2\]"):
        grad(x * x, x, seed, is_grads_batched=True)


def test_an_edge_is_an_output_with_a_gradient_of_its_own():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    middle = x.sin().sum()
    edge, out = dt.autograd.graph.get_gradient_edge(middle), middle.exp()
    (of_edge,) = dt.autograd.grad(out, (edge,), retain_graph=True)
    (by_edge,) = dt.autograd.grad(edge, (x,), grad_outputs=(of_edge,), retain_graph=True)
    assert by_edge.tolist() == dt.autograd.grad(out, x)[0].tolist()
