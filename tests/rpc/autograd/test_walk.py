"""One worker's walk in a distributed backward: fed in any order, the same bits every time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain.context import thread
from disttrain.rpc.autograd.nodes import RecvRpcBackward, SendRpcBackward
from disttrain.rpc.autograd.walk import FedWalk, received_below

pytestmark = pytest.mark.simulated


def received(message, *shapes):
    node = RecvRpcBackward(1, message, 3, lambda *said: pytest.fail("an ordinary backward"))
    tensors = [dt.ones(*shape) for shape in shapes]
    node.take(tensors)
    return node, tensors


class Gradients:
    """A sink that keeps what comes, and what was posted."""

    def __init__(self):
        self.of, self.posted = {}, []

    def __call__(self, acc, g, own):
        self.of[id(acc.variable)] = np.array(g)

    def post(self, recv, gradients):
        self.posted.append((recv.message, gradients and [g.tolist() for g in gradients]))


def walk_of(roots, sends, into):
    return FedWalk(roots, sends, into, into.post, keep=False, tensors=False, record=False)


# --- looking through the graph ---


def test_receive_nodes_below_are_found_once():
    (first, (a,)), (second, (b, c)) = received(1, (2,)), received(2, (2,), (2,))
    x = dt.ones(2, requires_grad=True)
    out = a * b + c * x
    seen = set()
    found = received_below([out.graph_node(), (a + 1).graph_node()], seen)
    assert sorted(n.message for n in found) == [1, 2] and {first, second} <= seen
    assert received_below([out.graph_node()], seen) == []


def test_a_look_ends_where_there_is_too_much():
    x = dt.ones(1, requires_grad=True)
    y = x
    for _ in range(50):
        y = y + 1
    assert received_below([y.graph_node()], set(), 10) is None
    assert received_below([y.graph_node()], set(), 100) == []


# --- walking ---


def test_a_walk_runs_as_far_as_it_is_fed():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    first, second = x * 3, x * 5
    sends = [SendRpcBackward([first], 1, (1,)), SendRpcBackward([second], 2, (2,))]
    into = Gradients()
    walk = walk_of([], sends, into)
    walk.feed_send(sends[0], [np.ones(2, np.float32)])
    walk.advance()
    assert into.of == {}, "the leaf waits for the other message"
    walk.feed_send(sends[1], [np.full(2, 10, np.float32)])
    walk.advance()
    assert into.of[id(x)].tolist() == [53, 53]


def test_no_gradient_is_an_answer_too():
    x = dt.tensor([1.0], requires_grad=True)
    sends = [SendRpcBackward([x * 3], 1, (1,)), SendRpcBackward([x * 5], 2, (2,))]
    into = Gradients()
    walk = walk_of([], sends, into)
    walk.feed_send(sends[1], None)
    walk.feed_send(sends[0], [np.ones(1, np.float32)])
    walk.advance()
    assert into.of[id(x)].tolist() == [3]


def test_gradients_of_received_tensors_are_posted_and_that_there_are_none():
    _, (a,) = received(11, (2,))
    _, (b, c) = received(12, (1,), (1,))
    sends = [SendRpcBackward([a * 2], 1, (1,)), SendRpcBackward([b * c], 2, (2,))]
    into = Gradients()
    walk = walk_of([], sends, into)
    walk.feed_send(sends[0], [np.array([1, 2], np.float32)])
    walk.feed_send(sends[1], [None])
    walk.advance()
    assert sorted(into.posted, key=lambda p: p[0]) == [(11, [[2, 4]]), (12, None)]


SCALES = [3.3, 1e8, 5.7, -9e7]  # of which sums in two orders differ


def summed(order, late=()):
    """What arrives at one leaf from four messages, fed in ``order``."""
    x = dt.tensor([1.1], requires_grad=True)
    sends = [SendRpcBackward([x * s], i, (i,)) for i, s in enumerate(SCALES)]
    into = Gradients()
    walk = walk_of([], sends, into)
    for i in order:
        walk.feed_send(sends[i], [np.array([1 + i / 7], np.float32)])
        if i in late:
            walk.advance()
    walk.advance()
    return into.of[id(x)].tobytes()


def test_sums_have_the_same_bits_in_whatever_order_gradients_arrive():
    orders = list(itertools.permutations(range(4)))
    bits = {summed(order, late) for order in orders for late in ((), (0, 2), range(4))}
    assert len(bits) == 1
    want = np.float32(0)
    for i in (3, 2, 1, 0):  # from the latest message to the earliest
        want = np.float32(want + np.float32(SCALES[i]) * np.float32(1 + i / 7))
    assert bits == {np.array([want]).tobytes()}


def test_the_state_of_the_thread_is_put_back():
    x = dt.tensor([1.0], requires_grad=True)
    send = SendRpcBackward([x * 3], 1, ())
    seen = []
    into = Gradients()
    walk = walk_of([], [send], into)
    x.register_hook(lambda g: seen.append((thread.walking is walk, thread.walk is walk)))
    walk.feed_send(send, [np.ones(1, np.float32)])
    walk.advance()
    assert seen == [(True, True)] and thread.walking is None and thread.walk is None
    assert thread.grad_enabled and thread.depth == 0 and not walk.busy


def test_callbacks_run_when_all_is_through_or_given_up():
    walk, told = walk_of([], [], Gradients()), []
    walk.callbacks.append(lambda: told.append(("well", thread.walk is walk)))
    walk.broken.append(lambda: told.append(("broken", thread.walk is walk)))
    walk.finish()
    walk.abandon()
    assert told == [("well", True), ("broken", True)] and thread.walk is None
