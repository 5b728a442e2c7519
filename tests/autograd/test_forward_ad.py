"""dt.autograd.forward_ad: duals in ordinary code, together with reverse mode."""

import pytest

import disttrain as dt
from disttrain.autograd import Function, grad
from disttrain.autograd import forward_ad as fw
from disttrain.errors import AutogradError

X, Y = dt.tensor([1.0, 2.0]), dt.tensor([3.0, 4.0])


def test_tangents_move_along():
    with fw.dual_level():
        dual = fw.make_dual(X, Y)
        value, moved = fw.unpack_dual(dual * dual)
        assert value.tolist() == [1.0, 4.0] and moved.tolist() == [6.0, 16.0]
        assert fw.unpack_dual(X).tangent is None
        assert fw.unpack_dual(dual + X).tangent.tolist() == [3.0, 4.0]
        stacked = dt.stack([dual, X])
        assert fw.unpack_dual(stacked).tangent.tolist() == [[3.0, 4.0], [0.0, 0.0]]
        assert fw.unpack_dual(dual[0]).tangent.item() == 3.0
        copy = dual.clone()
        copy.mul_(3)
        assert fw.unpack_dual(copy).tangent.tolist() == [9.0, 12.0]


def test_duals_can_be_read():
    with fw.dual_level():
        dual = fw.make_dual(X, Y)
        assert float(dual.sum()) == 3.0 and dual.tolist() == [1.0, 2.0]
        assert repr(dual) == "tensor([1., 2.], tangent=tensor([3., 4.]))"


def test_after_the_block_duals_are_ordinary_tensors():
    with fw.dual_level():
        out = fw.make_dual(X, Y) * 2
    assert type(out) is dt.Tensor and (out + 1).tolist() == [3.0, 5.0]
    assert fw.unpack_dual(out).tangent is None


def test_reverse_over_forward():
    x, w = X.clone().requires_grad_(), dt.tensor([5.0, 7.0], requires_grad=True)
    with fw.dual_level():
        out = (fw.make_dual(x, Y) ** 3 * w).sum()
        value, moved = fw.unpack_dual(out)
        assert (value.item(), moved.item()) == (61.0, 381.0)
        moved.backward()
    assert x.grad.tolist() == [90.0, 336.0] and w.grad.tolist() == [9.0, 48.0]


def test_forward_over_reverse():
    x, w = X.clone().requires_grad_(), dt.tensor([5.0, 7.0], requires_grad=True)
    with fw.dual_level():
        out = (fw.make_dual(x, Y) ** 3 * w).sum()
        (g,) = grad(out, x, create_graph=True)
        value, moved = fw.unpack_dual(g)
        assert value.tolist() == [15.0, 84.0] and moved.tolist() == [90.0, 336.0]
        out.backward()
    assert x.grad.tolist() == [15.0, 84.0] and w.grad.tolist() == [1.0, 8.0]
    assert type(w.grad) is dt.Tensor


def test_backward_after_the_block():
    x = X.clone().requires_grad_()
    with fw.dual_level():
        out = (fw.make_dual(x, Y) ** 2).sum()
    out.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_modules():
    linear = dt.nn.Linear(2, 1)
    with fw.dual_level():
        moved = fw.unpack_dual(linear(fw.make_dual(X, Y))).tangent
        assert moved.item() == pytest.approx((linear.weight @ Y).item(), rel=1e-6)


class Square(Function):
    @staticmethod
    def forward(ctx, a, k):
        ctx.k = k
        ctx.save_for_forward(a)
        return a * a * k

    @staticmethod
    def jvp(ctx, t, _):
        return 2 * ctx.saved_tensors[0] * t * ctx.k


def test_custom_functions():
    with fw.dual_level():
        value, moved = fw.unpack_dual(Square.apply(fw.make_dual(X, Y), 3))
    assert value.tolist() == [3.0, 12.0] and moved.tolist() == [18.0, 48.0]


def test_levels_by_hand():
    assert fw.enter_dual_level() == 0
    with pytest.raises(AutogradError, match="Nested"):
        fw.enter_dual_level()
    with pytest.raises(AutogradError, match="was not the last"):
        fw.exit_dual_level(level=3)
    fw.exit_dual_level()
    with pytest.raises(AutogradError, match="was not the last"):
        fw.exit_dual_level()


@pytest.mark.parametrize(
    ("primal", "tangent", "error", "text"),
    [(X, dt.ones(3), AutogradError, "different size"),
     (dt.ones(2, dtype=dt.int64), Y, ValueError, "primal to be floating point"),
     (X, dt.ones(2, dtype=dt.int64), ValueError, "tangent to be floating point"),
     (X, dt.ones(2, dtype=dt.float64), AutogradError, "must be equal")],
)  # fmt: skip
def test_what_makes_no_dual(primal, tangent, error, text):
    with pytest.raises(AutogradError, match="no level exists"):
        fw.make_dual(X, Y)
    with fw.dual_level():
        with pytest.raises(error, match=text):
            fw.make_dual(primal, tangent)


def test_duals_of_duals_are_refused():
    with fw.dual_level():
        dual = fw.make_dual(X, Y)
        with pytest.raises(AutogradError, match="itself has a forward gradient"):
            fw.make_dual(X, dual)
        with pytest.raises(AutogradError, match="already"):
            fw.make_dual(dual, Y)


def test_the_level_ends_when_the_block_raises():
    with pytest.raises(KeyError), fw.dual_level():
        raise KeyError("inside")
    with fw.dual_level():
        pass


def test_writes_to_views_of_duals_reach_value_and_tangent():
    foo, bar = X.clone(), Y.clone()
    with fw.dual_level():
        dual = fw.make_dual(foo, bar)
        view = dual.narrow(0, 0, 1)
        view *= 2
        assert fw.unpack_dual(foo).tangent is None
        assert fw.unpack_dual(dual).tangent.tolist() == bar.tolist() == [6.0, 4.0]
        assert fw.unpack_dual(dual).primal.tolist() == foo.tolist() == [2.0, 2.0]
        assert dual._version == foo._version == 1


def test_tensors_become_duals_when_duals_are_written_to_them():
    with fw.dual_level():
        dual = fw.make_dual(X.clone(), Y.clone())
        total = dt.ones(2)
        total += dual
        assert fw.unpack_dual(total).tangent.tolist() == [3.0, 4.0]
        rows = dt.zeros(2)
        rows[0] = dual[1]
        assert fw.unpack_dual(rows).tangent.tolist() == [4.0, 0.0]
        cut = rows.detach()
        cut.mul_(2)
        assert fw.unpack_dual(cut).tangent is None
        rows.fill_(1.0)
        assert fw.unpack_dual(rows).tangent.tolist() == [0.0, 0.0]
    assert type(total) is type(rows) is dt.Tensor and total.tolist() == [2.0, 3.0]


def test_detached_duals_have_no_tangent():
    with fw.dual_level():
        dual = fw.make_dual(X.clone().requires_grad_(), Y) * 1
        assert fw.unpack_dual(dual.detach() * 2).tangent is None
        dual.detach_()
        value, moved = fw.unpack_dual(dual * 2)
        assert moved is None and not value.requires_grad
        with dt.no_grad():
            value, moved = fw.unpack_dual(fw.make_dual(X, Y) * 3)
        assert not value.requires_grad and moved.tolist() == [9.0, 12.0]


def test_backward_of_a_custom_function_on_duals():
    class Double(Square):
        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    x = X.clone().requires_grad_()
    with fw.dual_level():
        assert fw.is_open()
        Double.apply(fw.make_dual(x, Y), 1).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0] and not fw.is_open()
