"""autograd.Function: what forward may return and save, what backward gets and may give."""

import gc
import weakref

import pytest

import disttrain as dt
from disttrain.autograd import Function, gradcheck, gradgradcheck, once_differentiable
from disttrain.errors import AutogradError


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


class Product(Function):
    """x * k * y, with k and an integer tensor among the results."""

    @staticmethod
    def forward(ctx, x, k, y):
        ctx.k = k
        ctx.save_for_backward(x, y, None)
        return x * k * y, k, y.long()

    @staticmethod
    def backward(ctx, g, _, g_long):
        x, y, nothing = ctx.saved_tensors
        assert nothing is None and g_long.tolist() == [0, 0]
        return g * ctx.k * y, None, g * ctx.k * x


def test_results_of_every_kind_and_a_second_derivative():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    a, k, whole = Product.apply(x, 5, y)
    assert k == 5 and a.requires_grad and not whole.requires_grad
    a.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [15.0, 20.0] and y.grad.tolist() == [5.0, 10.0]
    (g,) = dt.autograd.grad(a.sum(), x, create_graph=True)
    assert dt.autograd.grad(g.sum(), y)[0].tolist() == [5.0, 5.0]
    a.sum().backward()
    with pytest.raises(AutogradError, match="a second time"):
        a.sum().backward()
    with pytest.raises(AutogradError, match="a second time"):
        _ = a.grad_fn.saved_tensors


def test_grad_fn_is_named_after_the_function_and_shows_the_context():
    a, _, _ = Product.apply(leaf(1.0, 1.0), 5, leaf(1.0, 1.0))
    node = a.grad_fn
    assert node.name() == type(node).__name__ == "ProductBackward" and "ProductBackward" in repr(
        node
    )
    assert node.k == 5 and len(node.saved_tensors) == 3
    assert [n is None for n, _ in node.next_functions] == [False, True, False]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = node.nonsense


def test_nothing_saved_means_backward_twice():
    x = leaf(1.0, 2.0)
    y = Double.apply(x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class DoubleInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_an_input_changed_in_place():
    x = leaf(1.0, 2.0)
    b = x.clone()
    view = b[:1]
    out = DoubleInPlace.apply(b)
    assert out is b
    (out * view).sum().backward()  # y = 2x: y0 y0 + y1 y0
    assert x.grad.tolist() == [16.0, 4.0]


def test_a_view_changed_in_place():
    x = leaf(1.0, 2.0)
    b = x.clone()
    DoubleInPlace.apply(b[:1])
    (b * b).sum().backward()
    assert x.grad.tolist() == [8.0, 4.0]


def test_what_may_not_be_changed_in_place():
    x = leaf(1.0, 2.0)
    with pytest.raises(AutogradError, match="leaf"):
        DoubleInPlace.apply(x)
    with pytest.raises(AutogradError, match="leaf"):
        DoubleInPlace.apply(x[:1])

    class Lost(DoubleInPlace):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

    with pytest.raises(AutogradError, match="not returned as output"):
        Lost.apply(x.clone())


def test_the_same_tensor_twice():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, x

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 2

    x = leaf(1.0)
    a, b = Twice.apply(x.clone())
    assert a is b
    (a + b).backward()
    assert x.grad.item() == 4.0


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 7


def test_an_input_returned_as_it_is():
    x = leaf(1.0)
    out = Same.apply(x)
    assert out is not x and not out.is_leaf
    with pytest.raises(AutogradError, match="view"):
        out.mul_(2)
    Same.apply(x).backward()
    assert x.grad.item() == 7.0
    with dt.no_grad():
        out = Same.apply(x)
    assert out is not x and not out.requires_grad


def parts(materialize=True, non_diff=True):
    seen = []

    class Run(Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x * 2, x * 3
            ctx.mark_non_differentiable(b)
            ctx.set_materialize_grads(materialize)
            ctx._materialize_non_diff_grads = non_diff
            return a, b, x * 4

        @staticmethod
        def backward(ctx, *grads):
            seen.append([None if g is None else g.tolist() for g in grads])
            return grads[0] * 2

    return Run, seen


@pytest.mark.parametrize(
    ("materialize", "non_diff", "want"),
    [(True, True, [[1.0], [0.0], [0.0]]), (True, False, [[1.0], None, [0.0]]),
     (False, True, [[1.0], None, None])],
)  # fmt: skip
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_that_did_not_come(materialize, non_diff, want, create_graph):
    run, seen = parts(materialize, non_diff)
    x = leaf(1.0)
    a, b, c = run.apply(x)
    assert (a.requires_grad, b.requires_grad, c.requires_grad) == (True, False, True)
    a.sum().backward(create_graph=create_graph)
    assert seen == [want] and x.grad.tolist() == [2.0]


def test_hooks_see_gradients_that_did_not_come_as_none():
    run, _ = parts(materialize=False)
    a, _, _ = run.apply(leaf(1.0))
    got = []
    a.grad_fn.register_prehook(lambda grads: got.append([g is None for g in grads]))
    a.sum().backward()
    assert got == [[False, True, True]]


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def test_once_differentiable():
    x = leaf(1.0, 2.0)
    (g,) = dt.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [2.0, 4.0] and not g.requires_grad
    seed = dt.ones(2, requires_grad=True)
    (g,) = dt.autograd.grad(Square.apply(x), x, seed, create_graph=True)
    assert g.requires_grad  # refused only when it is wanted
    with pytest.raises(AutogradError, match="once_differentiable"):
        g.sum().backward()


class Scale(Function):
    @staticmethod
    def forward(x, scale=3.0):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.scale = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        assert ctx.saved_tensors[0].requires_grad
        return g * ctx.scale, None


@pytest.mark.parametrize(("args", "kwargs", "want"), [((), {}, 3.0), ((5.0,), {}, 5.0),
                                                      ((), {"scale": 4.0}, 4.0)])  # fmt: skip
def test_setup_context_sees_defaults(args, kwargs, want):
    x = leaf(1.0)
    Scale.apply(x, *args, **kwargs).backward()
    assert x.grad.item() == want


def test_vjp_is_another_name_of_backward():
    class Vjp(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    class Both(Vjp):
        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0)
    Vjp.apply(x).backward()
    assert x.grad.item() == 2.0
    with pytest.raises(AutogradError, match="both"):
        Both.apply(x).backward()


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [(lambda g: g, AutogradError, r"expected 2, got 1"),
     (lambda g: (g, g, g), AutogradError, r"expected 2, got 3"),
     (lambda g: (3, None), TypeError, "got int"),
     (lambda g: (g, g), AutogradError, "was not a Variable")],
)  # fmt: skip
def test_what_backward_may_not_return(result, error, text):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, k):
            return x * k

        @staticmethod
        def backward(ctx, g):
            return result(g)

    with pytest.raises(error, match=text):
        Wrong.apply(leaf(1.0), 3).backward()


def test_more_nones_than_inputs_and_gradients_nobody_wants():
    class Many(Function):
        @staticmethod
        def forward(ctx, x, y):
            assert ctx.needs_input_grad == (True, False)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * 2, g * 3, None, None

    x = leaf(1.0)
    Many.apply(x, dt.ones(1)).backward()
    assert x.grad.item() == 2.0


def test_missing_parts_say_so():
    class Empty(Function):
        pass

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    x = leaf(1.0)
    with pytest.raises(NotImplementedError, match="must implement the forward"):
        Empty.apply(x)
    with pytest.raises(NotImplementedError, match="backward or vjp"):
        NoBackward.apply(x).backward()
    with pytest.raises(AutogradError, match="apply"):
        NoBackward()(x)
    for save in ("save_for_backward", "save_for_forward"):

        class Saves(NoBackward):
            @staticmethod
            def forward(ctx, x, save=save):
                getattr(ctx, save)(3)

        with pytest.raises(TypeError, match="can only save variables"):
            Saves.apply(x)


def test_what_was_saved_and_then_written_to():
    x = leaf(1.0, 2.0)
    y = x * 1
    out = Product.apply(y, 2, leaf(1.0, 1.0))[0]
    y.mul_(2)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        out.sum().backward()
    out = Scale.apply(x)
    out.detach().zero_()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        out.sum().backward()


def test_no_grad_records_nothing():
    x = leaf(1.0, 1.0)
    with dt.no_grad():
        out, _, _ = Product.apply(x, 2, x)
    assert out.is_leaf and not out.requires_grad
    assert not Double.apply(dt.ones(1)).requires_grad


def test_checks_by_differences():
    x = dt.tensor([0.3, 0.7], dtype=dt.float64, requires_grad=True)

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    assert gradcheck(Cube.apply, (x,)) and gradgradcheck(Cube.apply, (x,))


def test_functions_make_no_cycle():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        outs = [Product.apply(x, 5, x)[0], Scale.apply(x), DoubleInPlace.apply(x.clone())]
        nodes = [weakref.ref(o.grad_fn) for o in outs]
        del outs
        assert [n() for n in nodes] == [None, None, None]
    finally:
        gc.enable()


class Silence(Function):
    """Its backward gives None."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return None


def noting(log, materialize=True):
    class Noting(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            log.append(None if g is None else g.tolist())
            return g

    return Noting.apply


@pytest.mark.parametrize("materialize, given", [(True, [0.0, 0.0]), (False, None)])
def test_what_lies_behind_a_gradient_of_none_runs(materialize, given):
    log, x = [], leaf(1.0, 2.0)
    inner = noting(log, materialize)(x)
    middle = inner * 3
    middle.register_hook(lambda g: log.append(("hook", g)))
    middle.grad_fn.register_prehook(lambda gs: log.append(("before", gs)))
    middle.grad_fn.register_hook(lambda gs, outs: log.append(("after", gs, outs)))
    x.register_post_accumulate_grad_hook(lambda t: log.append("written"))
    Silence.apply(middle).sum().backward()
    nones = ("after", (None, None), (None,))
    assert log == [("hook", None), ("before", (None,)), nones, given, "written"]
    assert (None if x.grad is None else x.grad.tolist()) == given


def test_recomputation_that_hangs_on_a_phony_runs():
    """A chain that recomputes by a Function whose only gradient is None, as pipelines do."""
    log = []

    class Recompute(Function):
        @staticmethod
        def forward(ctx, phony):
            return phony.detach()

        @staticmethod
        def backward(ctx, g):
            log.append("recompute")
            return None

    class Join(Function):
        @staticmethod
        def forward(ctx, x, phony):
            return x.detach()

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, phony = leaf(1.0, 2.0), dt.empty(0, requires_grad=True)
    y = Join.apply(x * 2, Recompute.apply(phony))
    y.sum().backward()
    assert log == ["recompute"] and x.grad.tolist() == [2.0, 2.0]


def test_none_cannot_be_replaced_by_a_gradient():
    for register in (
        lambda t: t.register_hook(lambda g: dt.ones(2)),
        lambda t: t.grad_fn.register_prehook(lambda gs: (dt.ones(2),)),
        lambda t: t.grad_fn.register_hook(lambda gs, outs: (dt.ones(2), None)),
    ):
        y = leaf(1.0, 2.0) * 2
        register(y)
        with pytest.raises(AutogradError, match="can't replace a None gradient"):
            Silence.apply(y).sum().backward()


def test_a_node_that_got_none_is_freed_too():
    y = leaf(1.0, 2.0).exp()
    Silence.apply(y).sum().backward()
    with pytest.raises(AutogradError, match="saved tensors were freed"):
        y.sum().backward()


def test_several_outputs_give_hooks_none_where_nothing_came():
    log = []
    a, b = (leaf(1.0, 2.0) * 3).unbind()
    a.grad_fn.register_prehook(lambda gs: log.append([None if g is None else g.item() for g in gs]))
    (Silence.apply(a) + b).sum().backward()
    assert log == [[None, 1.0]]


def test_backward_to_inputs_runs_their_own_nodes():
    log, x = [], leaf(1.0, 2.0)
    y = noting(log)(x)
    y.grad_fn.register_prehook(lambda gs: log.append("before"))
    y.grad_fn.register_hook(lambda gs, outs: log.append("after"))
    y.exp().sum().backward(inputs=(y,))
    assert log == ["before", y.exp().tolist(), "after"] and x.grad is None
    assert y.grad.tolist() == y.exp().tolist()
    log.clear()
    dt.autograd.grad(y.exp().sum(), y)
    assert log == []


def test_what_is_saved_is_looked_at_where_it_is_recorded():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.save_for_backward(x, other)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    assert Twice.apply(dt.ones(1), "no tensor").item() == 2
    with pytest.raises(TypeError, match="can only save variables"):
        Twice.apply(dt.ones(1, requires_grad=True), "no tensor")
