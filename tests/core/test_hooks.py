"""Hooks of tensors, nodes and leaves: order, replacing, removing, what is refused."""

import pytest

import disttrain as dt
from disttrain.errors import AutogradError


def ones(*shape):
    return dt.ones(*shape, requires_grad=True)


def test_tensor_hooks_run_in_order_and_may_replace():
    x, seen = ones(2), []
    y = x * 2
    y.register_hook(lambda g: seen.append(("first", g.tolist())))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(("third", g.tolist())))
    y.sum().backward()
    assert seen == [("first", [1.0, 1.0]), ("third", [10.0, 10.0])]
    assert x.grad.tolist() == [20.0, 20.0]


def test_a_leafs_hook_sees_the_complete_gradient_once():
    x, seen = ones(1), []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2 + x * 3).sum().backward()
    assert seen == [5.0]


def test_order_of_all_kinds():
    x, seen = ones(1), []
    y = x * 3
    node = y.grad_fn
    node.register_prehook(lambda outs: seen.append("pre"))
    node.register_hook(lambda ins, outs: seen.append("post"))
    y.register_hook(lambda g: seen.append("tensor"))
    x.register_hook(lambda g: seen.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("stored", t.grad.item())))
    y.sum().backward()
    assert seen == ["tensor", "pre", "post", "leaf", ("stored", 3.0)]


def test_node_hooks_may_replace():
    x = ones(1)
    y = x * 3
    y.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] + outs[0], *ins[1:]))
    y.sum().backward()
    assert x.grad.item() == 2 * 3 + 2


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_of_one_output_among_several(create_graph):
    x = ones(3)
    a, b, _ = x.unbind()
    b.register_hook(lambda g: g * 7)
    (a + b).backward(create_graph=create_graph)
    assert x.grad.tolist() == [1.0, 7.0, 0.0]


def test_removed_hooks_do_not_run():
    x, seen = ones(1), []
    first = x.register_hook(lambda g: seen.append(1))
    with x.register_hook(lambda g: seen.append(2)):
        x.sum().backward()
    x.sum().backward()
    first.remove()
    first.remove()
    x.sum().backward()
    assert seen == [1, 2, 1]


def test_a_hook_may_remove_itself_while_it_runs():
    x, seen = ones(1), []

    def once(g):
        seen.append(1)
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: seen.append(2))
    x.sum().backward()
    x.sum().backward()
    assert seen == [1, 2, 2]


def test_post_accumulate_hooks_may_drop_the_grad():
    x = ones(2)

    def take(t):
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(take)
    x.sum().backward()
    assert x.grad is None
    handle.remove()
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_grad_runs_tensor_hooks_but_stores_nothing():
    x, seen = ones(1), []
    x.register_hook(lambda g: g * 5)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t))
    (g,) = dt.autograd.grad((x * 2).sum(), x)
    assert g.item() == 10.0
    assert seen == [] and x.grad is None


def test_leaves_are_ready_in_reverse_order_of_forward():
    """What DDP counts on: every rank that ran the same forward sees this order."""
    weights = [ones(2) for _ in range(12)]
    seen = []
    for i, w in enumerate(weights):
        w.register_post_accumulate_grad_hook(lambda t, i=i: seen.append(i))
    for _ in range(3):
        h = dt.ones(2)
        for w in weights:
            h = (h * w).tanh()
        h.sum().backward()
        assert seen == list(reversed(range(12)))
        seen.clear()


def test_order_in_a_branching_graph_is_the_same_every_time():
    def order():
        seen, leaves = [], [ones(2) for _ in range(6)]
        for i, w in enumerate(leaves):
            w.register_post_accumulate_grad_hook(lambda t, i=i: seen.append(i))
        left = (leaves[0] * leaves[1]).exp()
        right = (leaves[2] + leaves[3]) * leaves[4]
        (left @ right + (leaves[5] * right).sum()).backward()
        return seen

    orders = [order() for _ in range(5)]
    assert all(o == orders[0] for o in orders)


def test_refused():
    with pytest.raises(AutogradError, match="does not require grad"):
        dt.ones(1).register_hook(lambda g: g)
    with pytest.raises(AutogradError, match="leaf"):
        (ones(1) * 2).register_post_accumulate_grad_hook(lambda t: None)
    x = ones(3)
    x.register_hook(lambda g: dt.ones(4))
    with pytest.raises(AutogradError, match=r"size.*\[4\].*\[3\]"):
        x.sum().backward()
    x = ones(3)
    x.register_hook(lambda g: g.double())
    with pytest.raises(AutogradError, match="changed the type"):
        x.sum().backward()
    x = ones(3)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    with pytest.raises(AutogradError, match="should return None"):
        x.sum().backward()
    y = ones(3)
    y.register_hook(lambda g: 1.0)
    with pytest.raises(AutogradError, match="float"):
        y.sum().backward()


def test_hook_values_are_not_recorded_unless_asked():
    x, kept = ones(2), []
    y = x * x
    y.register_hook(lambda g: kept.append(g.requires_grad or (g * x).requires_grad))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    assert kept == [False, True]


# --- retain_grad ------------------------------------------------------------------------------


def test_retain_grad_comes_after_all_hooks():
    y = ones(2) * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.tolist() == [10.0, 10.0]


def test_retained_grads_add_up_and_share_nothing():
    y = ones(2) * 2
    y.retain_grad()
    y.retain_grad()  # twice is once
    z = y * 1
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    assert y.grad.tolist() == [2.0, 2.0] and y.retains_grad


@pytest.mark.parametrize("times", [1, 2])
def test_retain_grad_is_of_the_final_value(times):
    x = ones(1)
    y = x.clone()
    y.retain_grad()
    for _ in range(times):
        y.mul_(3)
    y.sum().backward()
    assert y.grad.item() == 1.0 and x.grad.item() == 3.0**times


def test_retain_grad_of_views_of_a_base_that_is_written_to():
    base = ones(1).clone()
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    base.retain_grad()
    view.mul_(2)
    (view + other).sum().backward()
    assert view.grad.item() == other.grad.item() == 1.0
    assert base.grad.item() == 2.0


def test_retain_grad_of_a_written_view_that_nobody_uses():
    base = ones(1).clone()
    view = base[:]
    view.retain_grad()
    view.mul_(2)
    base.sum().backward()
    assert view.grad is None


def test_retain_grad_refused():
    with pytest.raises(AutogradError, match="retain_grad"):
        dt.ones(2).retain_grad()
    x = ones(2)
    x.retain_grad()
    assert not x.retains_grad


def test_retain_grad_of_one_output_among_several():
    a, b, c = ones(3).unbind()
    for t in (a, b, c):
        t.retain_grad()
    (a * 2 + b).backward()
    assert (a.grad.item(), b.grad.item(), c.grad) == (2.0, 1.0, None)


# --- tensors that are written to --------------------------------------------------------------


def test_a_hook_belongs_to_the_value_it_was_registered_on():
    x, seen = ones(1), []
    y = x.clone()
    y.register_hook(lambda g: seen.append(("before", g.item())))
    y.mul_(4)
    y.register_hook(lambda g: seen.append(("after", g.item())))
    y.sum().backward()
    assert seen == [("after", 1.0), ("before", 4.0)]


def test_hooks_of_views_that_are_written_over_do_not_run():
    base, seen = ones(1).clone(), []
    view, other = base[:], base[:]
    view.register_hook(lambda g: seen.append("view"))
    other.register_hook(lambda g: seen.append("other"))
    view.mul_(2)
    other.register_hook(lambda g: seen.append(g.item()))
    (view + other).sum().backward()
    assert seen == [1.0]


def test_hooks_of_an_output_without_gradient_get_none():
    a, b = ones(2).unbind()
    seen = []
    b.register_hook(lambda g: seen.append(g))
    a.backward()
    assert seen == [None]


# --- accumulators -----------------------------------------------------------------------------


def test_hooks_of_a_leafs_accumulator():
    x, seen = ones(1), []
    accumulator = x.view(1).grad_fn.next_functions[0][0]
    accumulator.register_prehook(lambda g: (g[0] * 2,))
    accumulator.register_hook(lambda ins, outs: seen.append((ins, outs[0].item(), x.grad.item())))
    x.register_hook(lambda g: seen.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("stored"))
    (x * 3).sum().backward()
    assert seen == ["tensor", "stored", ((), 6.0, 6.0)]
    dt.autograd.grad((x * 3).sum(), x)
    assert seen[3:] == ["tensor"]  # nothing is accumulated


def test_hooks_outlive_a_frozen_leaf():
    x, seen = ones(1), []
    x.register_hook(lambda g: seen.append(g.item()))
    y = x * 2
    x.requires_grad_(False)
    y.sum().backward()
    assert x.grad is None
    x.requires_grad_(True)
    (x * 3).sum().backward()
    assert seen == [2.0, 3.0] and x.grad.item() == 3.0


def test_named_inputs_run_the_hooks_of_leaves():
    x, seen = ones(1), []
    x.register_hook(lambda g: seen.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("stored"))
    (x * 3).sum().backward(inputs=[x])
    assert seen == ["tensor", "stored"]


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_in_a_second_backward(create_graph):
    """Hooks run in every walk that comes by, each time with that walk's gradient."""
    x, seen = ones(1), []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.item()))
    (g,) = dt.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward(create_graph=create_graph)
    assert seen == [6.0, 6.0] and x.grad.item() == 18.0


def test_a_replaced_gradient_is_what_a_second_derivative_sees():
    x = ones(1)
    y = x * 2
    y.register_hook(lambda g: g * x)
    (first,) = dt.autograd.grad((y * y).sum(), x, create_graph=True)
    assert first.item() == 8.0  # 2 y . x . 2 = 8 x^2
    assert first.requires_grad
