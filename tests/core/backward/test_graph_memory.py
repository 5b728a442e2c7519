"""What a graph keeps alive, and that it goes by reference counting alone."""

import gc
import weakref
from contextlib import contextmanager

import pytest

import disttrain as dt


@contextmanager
def without_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def model(x, w):
    h = (x @ w).relu()
    h = h * h.sigmoid() + dt.nn.functional.layer_norm(h, (4,))
    a, b = h.chunk(2)
    v = h.clone()
    v[0] = a.sum()
    v = v * b.mean()
    return dt.nn.functional.cross_entropy(v, dt.tensor([0, 1, 2, 3])) + h.softmax(-1).std()


@pytest.mark.parametrize("walk", ["none", "backward", "retained", "twice"])
def test_a_graph_is_no_cycle(walk):
    x, w = dt.randn(4, 4), dt.randn(4, 4, requires_grad=True)
    with without_collector():
        loss = model(x, w)
        node, alive = loss.grad_fn, []
        todo = [node]
        while todo:
            node = todo.pop()
            alive.append(weakref.ref(node))
            todo += [
                n
                for n, _ in node.next_functions
                if n is not None and n.name() != "torch::autograd::AccumulateGrad"
            ]
        if walk == "backward":
            loss.backward()
        elif walk == "retained":
            loss.backward(retain_graph=True)
        elif walk == "twice":
            (g,) = dt.autograd.grad(loss, w, create_graph=True)
            alive.append(weakref.ref(g.grad_fn))
            (g * g).sum().backward()
            del g
            w.grad = None
        del loss, node
        assert [r() for r in alive if r() is not None] == []


def test_backward_frees_what_was_saved():
    x = dt.ones(100, requires_grad=True)
    with without_collector():
        middle = x * 2
        saved = weakref.ref(middle)
        y = middle.square().sum()
        del middle
        assert saved() is not None
        y.backward()
        assert saved() is None
        assert y.grad_fn is not None


def test_what_no_rule_reads_is_not_kept():
    x = dt.ones(100, requires_grad=True)
    with without_collector():
        middle = x * 2
        gone = weakref.ref(middle)
        y = (middle + 1).sum()
        del middle
        assert gone() is None
        y.backward()
    assert x.grad.sum().item() == 200.0


def test_an_input_without_gradient_keeps_nothing_for_the_other():
    """d(a * b)/db needs a; a itself needs no gradient, so b is not kept."""
    a, b = dt.ones(10), dt.ones(10, requires_grad=True)
    with without_collector():
        c = b * 1
        gone = weakref.ref(c)
        y = a * c
        del c
        assert gone() is None
        y.sum().backward()


def test_a_dead_leaf_does_not_disturb():
    x = dt.ones(3, requires_grad=True)
    y = x * 2
    z = dt.ones(3, requires_grad=True)
    loss = (y * z).sum()
    del x
    loss.backward()
    assert z.grad.tolist() == [2.0, 2.0, 2.0]


def test_hooks_and_retained_grads_make_no_cycle():
    with without_collector():
        x = dt.ones(3, requires_grad=True)
        x.register_hook(lambda g: g)
        y = x * 2
        y.register_hook(lambda g: g * 2)
        z = y.sum()
        gone = [weakref.ref(t) for t in (x, y, z)]
        z.backward()
        del x, y, z
        assert [r() for r in gone] == [None, None, None]


def test_a_long_graph_is_dropped_without_recursion():
    x = dt.ones(1, requires_grad=True)
    y = x
    for _ in range(200_000):
        y = y * 1.0
    last = weakref.ref(y.grad_fn)
    del y
    assert last() is None
