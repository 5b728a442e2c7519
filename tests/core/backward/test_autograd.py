"""backward() and grad(): values, roots, what is refused, what is kept and what is freed."""

import copy
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError, DTypeError, ShapeError


def leaf(*values, **kwargs):
    return dt.tensor(values[0] if len(values) == 1 else values, requires_grad=True, **kwargs)


def test_polynomial():
    x = leaf(2.0)
    y = x**2 + 3 * x + 1
    y.backward()
    assert y.item() == 11.0
    assert x.grad.item() == 7.0


def test_third_derivative():
    x = leaf(2.0)
    d = x**4
    for want in (32.0, 48.0, 48.0):
        (d,) = dt.autograd.grad(d, x, create_graph=True)
        assert d.item() == want


def test_backward_with_create_graph_gives_a_grad_with_a_graph():
    x = leaf(3.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = dt.autograd.grad(x.grad, x)
    assert second.item() == 18.0


def test_grads_of_several_backwards_add_up():
    x = leaf(1.0, 2.0)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_backward_twice_says_what_to_do():
    x = leaf(2.0)
    y = (x * x).sin()
    y.backward()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        y.backward()


def test_retain_graph_allows_another_pass():
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8.0


def test_two_roots_over_one_graph():
    x = leaf(2.0)
    shared = x * x
    dt.autograd.backward([shared * 3, shared * 5])
    assert x.grad.item() == 32.0


def test_a_root_that_another_root_depends_on():
    x = leaf(2.0)
    a = x * x
    b = a * a
    dt.autograd.backward([a, b])
    assert x.grad.item() == 4.0 + 32.0


def test_the_same_root_twice():
    x = leaf(2.0)
    y = x * x
    dt.autograd.backward([y, y])
    assert x.grad.item() == 8.0


def test_a_leaf_is_its_own_root():
    x = leaf(2.0)
    x.backward()
    assert x.grad.item() == 1.0


def test_non_scalar_root_needs_a_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(AutogradError, match=r"\[2\].*scalar"):
        (x * x).backward()
    (x * x).backward(dt.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 40.0]


def test_a_root_of_one_element_needs_none():
    x = leaf([[3.0]])
    (x * x).backward()
    assert x.grad.tolist() == [[6.0]]


def test_gradient_of_the_wrong_shape():
    x = leaf(1.0, 2.0)
    with pytest.raises(ShapeError, match=r"\[3\].*\[2\]"):
        (x * x).backward(dt.ones(3))
    with pytest.raises(AutogradError, match="1 gradients given for 2"):
        dt.autograd.backward([x.sum(), x.sum()], [dt.tensor(1.0)])
    with pytest.raises(TypeError, match="Tensor"):
        (x * x).backward(np.ones(2))


@pytest.mark.parametrize("cut", [lambda x: x.detach(), lambda x: x.data * 2])
def test_root_without_a_graph(cut):
    with pytest.raises(AutogradError, match="does not require grad"):
        cut(leaf(1.0)).backward()


def test_root_made_under_no_grad():
    x = leaf(1.0)
    with dt.no_grad():
        y = x * 2
    assert y.is_leaf and y.grad_fn is None
    with pytest.raises(AutogradError, match="no_grad"):
        y.backward()


def test_only_the_named_inputs_get_gradients():
    a, b = leaf(2.0), leaf(3.0)
    middle = a * b
    (middle * middle).backward(inputs=[a, middle])
    assert a.grad.item() == 36.0
    assert b.grad is None
    assert middle.grad.item() == 12.0
    with pytest.raises(AutogradError, match="empty"):
        (a * b).backward(inputs=[])


def test_grad_leaves_the_grad_field_alone():
    a, b = leaf(2.0), leaf(3.0)
    ga, gb = dt.autograd.grad(a * b, (a, b))
    assert (ga.item(), gb.item()) == (3.0, 2.0)
    assert a.grad is None and b.grad is None


def test_grad_of_unused_inputs():
    a, b = leaf(2.0), leaf(1.0, 1.0)
    with pytest.raises(AutogradError, match="allow_unused"):
        dt.autograd.grad(a * a, (a, b))
    ga, gb = dt.autograd.grad(a * a, (a, b), allow_unused=True)
    assert ga.item() == 4.0 and gb is None
    _, gb = dt.autograd.grad(a * a, (a, b), materialize_grads=True)
    assert gb.tolist() == [0.0, 0.0] and not gb.requires_grad
    _, gb = dt.autograd.grad(a * a, (a, b), create_graph=True, materialize_grads=True)
    assert gb.requires_grad  # what is made of it may be differentiated


def test_grad_with_respect_to_a_tensor_outside_of_the_graph():
    with pytest.raises(AutogradError, match=r"input 0 .* does not require grad"):
        dt.autograd.grad(leaf(1.0) * 2, dt.tensor(1.0))


def test_grad_outputs():
    x = leaf(1.0, 2.0)
    (g,) = dt.autograd.grad(x * x, x, grad_outputs=dt.tensor([10.0, 100.0]))
    assert g.tolist() == [20.0, 400.0]
    (g,) = dt.autograd.grad(
        [x * 2, (x * 3).sum()], x, grad_outputs=[dt.ones(2), None], allow_unused=True
    )
    assert g.tolist() == [5.0, 5.0]


def test_gradient_with_respect_to_a_middle_tensor():
    x = leaf(2.0)
    middle = x * x
    (g,) = dt.autograd.grad(middle.exp() + x, middle)
    assert g.item() == pytest.approx(np.exp(4.0), rel=1e-6)


def test_retain_grad():
    x = leaf(2.0)
    middle = x * 3
    middle.retain_grad()
    assert middle.retains_grad
    (middle * middle).backward()
    assert middle.grad.item() == 12.0
    assert x.grad.item() == 36.0


def test_a_middle_tensor_keeps_no_grad_by_itself():
    x = leaf(2.0)
    middle = x * 3
    (middle * middle).backward()
    assert middle.grad is None


def test_several_outputs_of_one_node():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    a, b, c, d = x.unbind()
    (a * 2 + d * 5).backward()
    assert x.grad.tolist() == [2.0, 0.0, 0.0, 5.0]
    assert (a.output_nr, d.output_nr) == (0, 3)
    assert b.grad_fn is c.grad_fn


def test_graph_is_told():
    x = leaf(1.0)
    y = (x * 2).exp()
    assert x.grad_fn is None and x.is_leaf and not y.is_leaf
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "ExpBackward0"
    assert y.grad_fn is y.grad_fn and type((x * 2).exp().grad_fn) is type(y.grad_fn)
    (product, number), *rest = y.grad_fn.next_functions
    assert (product.name(), number, rest) == ("MulBackward0", 0, [])
    assert type(product).__name__ == "MulBackward0"
    (accumulate, _), (nothing, _) = product.next_functions
    assert accumulate.name() == "torch::autograd::AccumulateGrad" and accumulate.variable is x
    assert nothing is None


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), ()), ((1,), (5,)), ((2, 1, 4), (3, 1)),
     ((0, 3), (3,)), ((), ())],
)  # fmt: skip
def test_broadcasting_is_undone(a, b):
    rng = np.random.default_rng(0)
    x = dt.tensor(rng.normal(size=a), requires_grad=True)
    y = dt.tensor(rng.normal(size=b), requires_grad=True)
    (x * y).sum().backward()
    whole = np.broadcast_shapes(a, b)

    def down(full, shape):
        full = full.sum(tuple(range(full.ndim - len(shape))))
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
        return full.sum(axes, keepdims=True) if axes else full

    np.testing.assert_allclose(x.grad.numpy(), down(np.broadcast_to(y.detach().numpy(), whole), a))
    np.testing.assert_allclose(y.grad.numpy(), down(np.broadcast_to(x.detach().numpy(), whole), b))


def test_gradients_come_back_in_the_types_of_the_leaves():
    half = dt.ones(3, dtype=dt.float16, requires_grad=True)
    brain = dt.ones(3, dtype=dt.bfloat16, requires_grad=True)
    double = dt.ones(3, dtype=dt.float64, requires_grad=True)
    (half * brain * double).sum().backward()
    assert [t.grad.dtype for t in (half, brain, double)] == [dt.float16, dt.bfloat16, dt.float64]


def test_casts_are_differentiable():
    x = leaf(1.5, 2.5)
    (x.double() * 3).half().sum().backward()
    assert x.grad.dtype is dt.float32 and x.grad.tolist() == [3.0, 3.0]


def test_no_gradient_flows_through_integers():
    x = leaf(1.5, 2.5)
    assert not x.long().requires_grad
    assert not x.argmax().requires_grad
    assert not (x > 2).requires_grad


def test_two_leaves_never_share_the_memory_of_their_grads():
    for combine in (lambda a, b: a + b, lambda a, b: a - (-b), lambda a, b: a.view(3) + b):
        a, b = dt.ones(3, requires_grad=True), dt.ones(3, requires_grad=True)
        combine(a, b).sum().backward()
        assert not np.shares_memory(a.grad.numpy(), b.grad.numpy())
        a.grad.mul_(100)
        assert b.grad.tolist() == [1.0, 1.0, 1.0]


def test_grad_does_not_share_the_callers_gradient():
    x, given = dt.ones(3, requires_grad=True), dt.ones(3)
    (x + 0).backward(given)
    x.grad.zero_()
    assert given.tolist() == [1.0, 1.0, 1.0]
    y = dt.ones(3, requires_grad=True)
    y.backward(given)
    y.grad.zero_()
    assert given.tolist() == [1.0, 1.0, 1.0]


def test_grad_can_be_set_and_must_fit():
    x = dt.ones(3, requires_grad=True)
    x.grad = dt.zeros(3)
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ShapeError, match=r"\[4\].*\[3\]"):
        x.grad = dt.zeros(4)
    with pytest.raises(TypeError, match="Tensor or None"):
        x.grad = 0.0
    x.grad = None
    assert x.grad is None


def test_diamonds_are_summed_once():
    x = leaf(3.0)
    total = x
    for _ in range(20):
        total = total + total
    total.backward()
    assert x.grad.item() == 2.0**20


def test_a_graph_of_fifty_thousand_nodes():
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = y + x
    y.backward()
    assert x.grad.item() == 50_001.0
    del y


def test_float_graph_position_survives_a_failed_backward():
    x = leaf(2.0)
    y = x * x

    def refuse(grad):
        raise KeyError("hook")

    handle = y.register_hook(refuse)
    with pytest.raises(KeyError, match="hook"):
        y.backward()
    handle.remove()
    y.backward()
    assert x.grad.item() == 4.0 and dt.is_grad_enabled()


def test_backward_inside_of_a_hook():
    x, z = leaf(2.0), leaf(5.0)

    def inner(grad):
        with dt.enable_grad():
            (z * z).backward()

    y = x * x
    y.register_hook(inner)
    y.backward()
    assert (x.grad.item(), z.grad.item()) == (4.0, 10.0)


# --- types, versions, copies ------------------------------------------------------------------


def test_gradients_of_another_type():
    x = leaf(1.0, 2.0)
    (x * 1).backward(dt.ones(2, dtype=dt.float64))
    assert x.grad.dtype is dt.float32
    with pytest.raises(DTypeError, match="same dtype"):
        (x * 1).backward(dt.ones(2, dtype=dt.complex64))
    with pytest.raises(AutogradError, match="only for real"):
        (x * 1j).sum().backward()
    for wrong in (dt.ones(2, dtype=dt.float64), dt.ones(2, device="meta")):
        with pytest.raises(RuntimeError, match=r"\.grad: a gradient"):
            x.grad = wrong


def test_contradicting_answers_for_unused_inputs():
    x = leaf(1.0)
    with pytest.raises(ValueError, match="contradict"):
        dt.autograd.grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_nothing_saved_means_backward_twice():
    x = leaf(1.0, 2.0)
    y = (x + 1).view(2, 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_data_has_versions_of_its_own():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = y * y
    y.data.zero_()
    assert y._version == 0 and y.tolist() == [0.0, 0.0]
    z.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("through", ["detach", "detached view", "view of detached"])
@pytest.mark.parametrize("saver", ["exp", "relu", "sigmoid", "sqrt", "tanh", "softmax"])
def test_writes_through_detach_to_a_saved_result_are_noticed(saver, through):
    x = leaf(1.0, 2.0)
    y = x.softmax(0) if saver == "softmax" else getattr(x, saver)()
    loss = y.sum()
    if through == "detach":
        y.detach()[0] = 5.0
    elif through == "detached view":
        y.view(2, 1).detach().zero_()
    else:
        y.detach().view(2, 1).zero_()
    assert y._version == 1
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        loss.backward()


def test_writes_before_detach_do_not_count():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.detach()
    y.view(2).detach()
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


def test_writes_through_detach_to_a_saved_input_are_noticed():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = y * y
    y.detach().mul_(2)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        z.sum().backward()


def test_writes_to_a_saved_result_between_two_orders_are_noticed():
    x = leaf(1.0, 2.0)
    y = x.exp()
    alias = y.detach()
    (g,) = dt.autograd.grad(y.sum(), x, create_graph=True)
    alias.zero_()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        g.sum().backward()


def test_deepcopy_copies_the_grad_of_a_tensor_and_not_of_a_parameter():
    x = leaf(1.0, 2.0)
    x.sum().backward()
    other = copy.deepcopy(x)
    other.grad.zero_()
    assert x.grad.tolist() == [1.0, 1.0] and other.requires_grad
    p = dt.nn.Parameter(dt.ones(2))
    p.sum().backward()
    assert copy.deepcopy(p).grad is None
    with pytest.raises(AutogradError, match="deepcopy"):
        copy.deepcopy(x * 2)


def test_deepcopy_keeps_the_strides():
    t = dt.arange(6.0).reshape(2, 3).t()
    assert copy.deepcopy(t).stride() == t.stride()


def test_named_inputs_that_are_no_leaves_retain_their_grad():
    x = leaf(2.0)
    y = x * 3
    (y * y).backward(inputs=[y])
    assert y.retains_grad and y.grad.item() == 12.0 and x.grad is None
    with pytest.raises(AutogradError, match=r"input 0 .* does not require grad"):
        (x * 2).backward(inputs=[dt.ones(1)])


def test_frozen_leaves_get_nothing():
    x = leaf(2.0)
    y = x * 3
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None


def test_many_threads_add_to_the_same_leaf():
    x = dt.zeros(1000, requires_grad=True)

    def work():
        for _ in range(50):
            (x * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.grad.tolist() == [400.0] * 1000


def test_a_graph_built_in_one_thread_is_walked_in_another():
    x, made = leaf(3.0), []
    builder = threading.Thread(target=lambda: made.append(x * x))
    builder.start()
    builder.join()
    walker = threading.Thread(target=made[0].backward)
    walker.start()
    walker.join()
    assert x.grad.item() == 6.0


class Deep(dt.autograd.Function):
    """Backward runs a backward of its own, as often as the value says."""

    @staticmethod
    def forward(ctx, x):
        with dt.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx, g):
        if ctx.x.item() >= 0:
            with dt.enable_grad():
                Deep.apply(ctx.x).sum().backward()
        assert not dt.is_grad_enabled()
        return g


@pytest.mark.parametrize("depth", [10, 300])
def test_walks_inside_of_walks(depth):
    x = leaf(float(depth))
    Deep.apply(x).sum().backward()
    assert x.grad.item() == 1.0


def test_errors_come_out_of_walks_inside_of_walks():
    leaves = [leaf(1.0) for _ in range(60)]

    def start(i):
        if i == len(leaves):
            raise KeyError("deep inside")
        with dt.enable_grad():
            (leaves[i] * 1).sum().backward()

    for i, x in enumerate(leaves):
        x.register_hook(lambda g, i=i: start(i + 1))
    with pytest.raises(KeyError, match="deep inside"):
        start(0)
    assert all(x.grad is None for x in leaves) and dt.is_grad_enabled()
    x = leaf(2.0)
    (x * x).backward()
    assert x.grad.item() == 4.0


SCALARS = {
    "div": lambda x: x / (x.detach() + 1),
    "below": lambda x: x.detach() / x,
    "mul": lambda x: x * x.detach(),
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "pow": lambda x: x**3,
    "log": lambda x: x.log(),
    "tanh": lambda x: x.tanh(),
    "atan2": lambda x: dt.atan2(x, x.detach() * 2),
    "where": lambda x: dt.where(x > 0, x / 2, x),
    "ratio of norms": lambda x: (dt.arange(3.0, dtype=x.dtype) * (x / dt.tensor(2.0).to(x))).sum(),
}


@pytest.mark.parametrize("kind", [dt.float32, dt.float64])
@pytest.mark.parametrize("name", SCALARS)
def test_gradients_without_dimensions_add_up_and_can_be_written_to(name, kind):
    x = dt.tensor(1.5, dtype=kind, requires_grad=True)
    seen = []
    y = x * 1
    y.register_hook(lambda g: seen.append(g.clone().mul_(2)))
    SCALARS[name](x).backward()
    once = x.grad.item()
    assert once != 0
    SCALARS[name](x).backward()
    assert x.grad.item() == pytest.approx(2 * once, rel=1e-6)
    x.grad.mul_(0.5)
    assert x.grad.item() == pytest.approx(once, rel=1e-6)
    SCALARS[name](y).backward()
    assert x.grad.item() == pytest.approx(2 * once, rel=1e-6)
    assert seen[0].item() == pytest.approx(2 * once, rel=1e-6)
    (g,) = dt.autograd.grad(SCALARS[name](x), x)
    assert g.zero_().item() == 0.0
    x.grad.zero_()
    assert x.grad.item() == 0.0


def test_one_length_for_a_whole_weight_adds_up_its_gradients():
    layer = dt.nn.utils.parametrizations.weight_norm(dt.nn.Linear(3, 2), dim=None)
    length = layer.parametrizations.weight.original0
    assert length.shape == ()
    for times in (1, 2, 3):
        layer(dt.ones(2, 3)).square().sum().backward()
        if times == 1:
            once = length.grad.item()
        assert length.grad.item() == pytest.approx(times * once, rel=1e-5)
    dt.nn.utils.clip_grad_norm_(layer.parameters(), 1e-3, norm_type=1)
    layer.zero_grad(set_to_none=False)
    assert length.grad.item() == 0.0
