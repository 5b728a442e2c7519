"""The two nodes that a message leaves in the graph."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.context import thread
from disttrain.core.node import Output
from disttrain.rpc.autograd.nodes import RecvRpcBackward, SendRpcBackward

pytestmark = pytest.mark.simulated


def received(*shapes, go_on=None):
    """A receive node, and the tensors that came with it."""
    node = RecvRpcBackward(7, 70, 3, go_on)
    tensors = [dt.zeros(*shape) for shape in shapes]
    node.take(tensors)
    return node, tensors


def test_a_send_node_leads_to_the_tensors_that_left_and_hands_their_gradients_on():
    x, y = dt.ones(2, requires_grad=True), dt.ones(3, requires_grad=True)
    node = SendRpcBackward([x * 2, y], 5, (1, 2))
    assert node.num_outputs == 2 and (node.message, node.path) == (5, (1, 2))
    assert node.edges[0] is not None and node.shapes[1][0] == (3,)
    g = (np.ones(2), None)
    assert node.run(g, False) is g
    assert node.name() == "torch::distributed::autograd::SendRpcBackward"
    later = SendRpcBackward([x], 6, ())
    assert later.seq > node.seq


def test_one_tensor_lies_at_the_node_and_several_at_its_outputs():
    node, (t,) = received((2, 3))
    assert t._node is node and node.num_outputs == 1 and node.shape == (2, 3)
    node, tensors = received((2,), (3,))
    assert node.num_outputs == 2 and [s[0] for s in node.shapes] == [(2,), (3,)]
    for i, t in enumerate(tensors):
        assert t._node.__class__ is Output and (t._node.node, t._node.index) == (node, i)
    assert node.name() == "torch::distributed::autograd::RecvRpcBackward"


def test_what_was_received_requires_grad_and_is_computed_with():
    _, (t,) = received((2,))
    y = (t * 3).sum()
    assert t.requires_grad and not t.is_leaf and y.grad_fn is not None


def test_an_ordinary_backward_goes_on_elsewhere():
    came = []
    node, (t,) = received((2,), go_on=lambda recv, g, tensors: came.append((recv, g, tensors)))
    (t * dt.tensor([3.0, 4.0])).sum().backward()
    ((recv, g, tensors),) = came
    assert recv is node and g.tolist() == [3, 4] and not tensors


def test_outputs_that_nothing_used_bring_none():
    came = []
    node, (a, b, c) = received((2,), (2,), (1,), go_on=lambda *said: came.append(said))
    (a.sum() + c.sum() * 5).backward()
    ((_, g, _),) = came
    assert g[0].tolist() == [1, 1] and g[1] is None and g[2].tolist() == [5]
    places = node.places(g)
    assert [(place.index, got.tolist()) for place, got in places] == [(0, [1, 1]), (2, [5])]
    assert node.places("one") == [(node, "one")]


class Shipping:
    """A walk that can send gradients, as far as the node knows one."""

    def __init__(self):
        self.shipped = []

    def ship(self, recv, gradients):
        self.shipped.append((recv, gradients))


@pytest.fixture
def walk(monkeypatch):
    made = Shipping()
    monkeypatch.setattr(thread, "walking", made)
    return made


def test_a_walk_that_can_send_is_given_the_gradients_as_a_tuple(walk):
    node, _ = received((2,), go_on=lambda *said: pytest.fail("an ordinary one"))
    assert node.run("g", False) == () and walk.shipped == [(node, ("g",))]
    several, _ = received((2,), (3,))
    several.run(("a", None), False)
    assert walk.shipped[1] == (several, ("a", None))


def test_where_no_gradient_came_that_is_sent_too(walk):
    node, _ = received((2,))
    assert node.run_without(False) == () and walk.shipped == [(node, None)]


def test_without_a_walk_that_sends_nothing_is_said_of_nothing():
    node, _ = received((2,), go_on=lambda *said: pytest.fail("called"))
    assert node.run_without(False) == () and node.release() is None
