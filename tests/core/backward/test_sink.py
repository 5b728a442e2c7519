"""Where gradients end: whose memory ``.grad`` is, what is added to it, what hooks see."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.backward.sink import accumulate, store_grad
from disttrain.core.node import AccumulateGrad
from disttrain.core.tensor import wrap
from disttrain.errors import AutogradError


def leaf(*values):
    return dt.tensor(list(values), requires_grad=True)


def numbers(*values):
    return np.array(values, np.float32)


def test_a_gradient_is_copied_unless_nobody_else_has_it():
    x, g = leaf(1.0, 2.0), numbers(3, 4)
    store_grad(x, g)
    assert x.grad.tolist() == [3, 4] and not np.shares_memory(x.grad.numpy(), g)
    y = leaf(1.0, 2.0)
    store_grad(y, g, own=True)
    assert np.shares_memory(y.grad.numpy(), g)


@pytest.mark.parametrize("view", [lambda a: a[:2], lambda a: a[::2], lambda a: a.reshape(2, 2).T])
def test_what_is_part_of_other_memory_or_lies_otherwise_is_copied_all_the_same(view):
    whole = numbers(1, 2, 3, 4)
    g = view(whole)
    x = dt.zeros(*g.shape, requires_grad=True)
    store_grad(x, g, own=True)
    assert x.grad.tolist() == g.tolist() and not np.shares_memory(x.grad.numpy(), whole)
    assert x.grad.is_contiguous()


def test_later_gradients_are_added_in_place_and_count_as_a_write():
    x = leaf(1.0, 2.0)
    store_grad(x, numbers(1, 2))
    grad, view = x.grad, x.grad.detach()  # from now on writes are counted
    seen = view._version
    store_grad(x, numbers(10, 20))
    assert x.grad is grad and view.tolist() == [11, 22]
    assert grad._version == view._version == seen + 1


def test_a_gradient_that_cannot_be_written_to_is_replaced():
    x = leaf(1.0, 2.0)
    x._grad = wrap(np.broadcast_to(numbers(1), (2,)))
    store_grad(x, numbers(10, 20))
    assert x.grad.tolist() == [11, 21]


def test_gradients_that_are_tensors_stay_in_the_graph():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    store_grad(x, w * 2)
    store_grad(x, w * 3)
    assert x.grad.tolist() == [15, 20] and x.grad.grad_fn is not None
    x.grad.sum().backward()
    assert w.grad.tolist() == [5, 5]


def test_the_sink_writes_to_the_leaf_or_where_its_accumulator_says():
    x = leaf(1.0, 2.0)
    acc = AccumulateGrad(x)
    accumulate(acc, numbers(1, 2))
    assert x.grad.tolist() == [1, 2]
    stored = []
    acc.store = lambda to, g: stored.append((to, g.tolist()))
    accumulate(acc, numbers(5, 6))
    assert stored == [(x, [5, 6])] and x.grad.tolist() == [1, 2]


def test_a_leaf_that_is_gone_or_frozen_gets_nothing():
    x = leaf(1.0)
    acc = AccumulateGrad(x)
    x.requires_grad_(False)
    accumulate(acc, numbers(1))
    assert x.grad is None
    y = leaf(1.0)
    gone = AccumulateGrad(y)
    gone.add_post_hook(lambda t: pytest.fail("called"))
    del y
    gc.collect()
    accumulate(gone, numbers(1))


def test_hooks_see_the_leaf_with_its_gradient_and_return_nothing():
    x, seen = leaf(1.0), []
    acc = AccumulateGrad(x)
    acc.add_post_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    accumulate(acc, numbers(3))
    accumulate(acc, numbers(4))
    assert seen == [(True, [3]), (True, [7])]
    acc.add_post_hook(lambda t: t)
    with pytest.raises(AutogradError, match="should return None"):
        accumulate(acc, numbers(1))


def test_threads_lose_no_gradient():
    x = dt.zeros(1000, requires_grad=True)
    acc, g = AccumulateGrad(x), np.ones(1000, np.float32)
    threads = [
        threading.Thread(target=lambda: [accumulate(acc, g) for _ in range(50)]) for _ in range(4)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert (x.grad.numpy() == 200).all()


def test_a_gradient_on_a_device_stays_there_and_is_its_leaf_s_own(double):
    x = dt.ones(2, device="cuda", requires_grad=True)
    g = dt.tensor([1.0, 2.0], device="cuda")
    store_grad(x, g.array)
    assert x.grad.device == "cuda:0" and not x.grad.array.shares_with(g.array)
    store_grad(x, g.array)
    assert x.grad.tolist() == [2, 4] and g.tolist() == [1, 2]


def test_a_gradient_lies_in_the_order_of_its_leaf():
    x = dt.randn(2, 3, 4, 5)
    for make in (
        lambda: x.to(memory_format=dt.channels_last), lambda: x.permute(3, 1, 0, 2).clone(), x.clone
    ):  # fmt: skip
        leaf = make().requires_grad_()
        for fn in (dt.exp, dt.relu, lambda t: t.sum(), lambda t: t[:, :1] * 2):
            leaf.grad = None
            fn(leaf).sum().backward()
            assert leaf.grad.stride() == leaf.stride()
            first = leaf.grad.clone()
            fn(leaf).sum().backward()
            assert dt.equal(leaf.grad, 2 * first)
    part = dt.zeros(4, 6)[:, ::2].requires_grad_()  # with gaps: in C order
    part.sum().backward()
    assert part.grad.is_contiguous()
