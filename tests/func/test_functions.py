"""autograd.Function inside the function transforms."""

import pytest

import disttrain as dt
from disttrain.autograd import Function
from disttrain.errors import AutogradError
from disttrain.func import grad, jacrev, jvp, vmap


class Form(Function):
    """x * x * y, by a generated batch rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return 2 * x * y * g, x * x * g

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return 2 * x * y * tx if ty is None else 2 * x * y * tx + x * x * ty


class OldForm(Function):
    """The same, in one part."""

    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * x * y

    backward = Form.backward


class OwnRule(Form):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, y):
        assert (info.batch_size, info.randomness, in_dims) == (2, "error", (0, None))
        return OwnRule.apply(x, y), 0


X = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
Y = dt.tensor([3.0, 4.0])
KINDS = [Form, OldForm, OwnRule]


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_and_a_gradient_around_it(kind):
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    out = vmap(kind.apply, in_dims=(0, None))(x, y)
    assert out.tolist() == (X * X * Y).tolist()
    out.sum().backward()
    assert x.grad.tolist() == (2 * X * Y).tolist()
    assert y.grad.tolist() == (X * X).sum(0).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_inside_of_vmap(kind):
    inner = grad(lambda x, y: kind.apply(x, y).sum())
    assert vmap(inner, in_dims=(0, None))(X, Y).tolist() == (2 * X * Y).tolist()
    x = X.clone().requires_grad_()
    vmap(inner, in_dims=(0, None))(x, Y).sum().backward()
    assert x.grad.tolist() == (2 * Y).expand(2, 2).tolist()


def test_jacobian():
    assert jacrev(lambda x: Form.apply(x, Y))(X[0]).tolist() == [[6.0, 0.0], [0.0, 16.0]]


@pytest.mark.parametrize("both", [False, True])
def test_jvp(both):
    ones = dt.ones(2)
    if both:
        value, moved = jvp(Form.apply, (X[0], Y), (ones, ones))
        assert moved.tolist() == [7.0, 20.0]
    else:
        value, moved = jvp(lambda x: Form.apply(x, Y), (X[0],), (ones,))
        assert moved.tolist() == [6.0, 16.0]
    assert value.tolist() == [3.0, 16.0]


def test_what_has_no_rule_says_so():
    class Bare(Form):
        generate_vmap_rule = False
        jvp = Function.jvp

    class Both(OwnRule):
        generate_vmap_rule = True

    class Short(Form):
        @staticmethod
        def jvp(ctx, tx, ty):
            return tx, tx

    with pytest.raises(NotImplementedError, match="generate_vmap_rule"):
        vmap(Bare.apply, in_dims=(0, None))(X, Y)
    with pytest.raises(NotImplementedError, match="jvp"):
        jvp(lambda x: Bare.apply(x, Y), (X[0],), (X[0],))
    with pytest.raises(AutogradError, match="keep one"):
        vmap(Both.apply, in_dims=(0, None))(X, Y)
    with pytest.raises(AutogradError, match="2 tangents for 1 results"):
        jvp(lambda x: Short.apply(x, Y), (X[0],), (X[0],))


class InPlace(Function):
    @staticmethod
    def forward(ctx, x, honest):
        ctx.mark_dirty(x)
        ctx.honest = honest
        return x.mul_(2)

    @staticmethod
    def jvp(ctx, t, _):
        return t.mul_(2) if ctx.honest else t * 2


def test_jvp_of_a_function_that_writes_to_its_input():
    value, moved = jvp(lambda x: InPlace.apply(x.clone(), True), (X[0],), (dt.ones(2),))
    assert value.tolist() == [2.0, 4.0] and moved.tolist() == [2.0, 2.0]
    with pytest.raises(AutogradError, match="not modifying the forward mode gradients inplace"):
        jvp(lambda x: InPlace.apply(x.clone(), False), (X[0],), (dt.ones(2),))
