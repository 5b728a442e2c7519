"""What nodes save goes through the program's hooks, where there are any."""

import pytest

import disttrain as dt
from disttrain.autograd import Function, graph
from disttrain.errors import AutogradError


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


def test_pack_and_unpack_are_called_once_per_saved_tensor():
    calls = []

    def pack(t):
        assert not t.requires_grad and not dt.is_grad_enabled()
        calls.append("pack")
        return t.clone()

    def unpack(kept):
        calls.append("unpack")
        return kept

    a = leaf(2.0)
    with graph.saved_tensors_hooks(pack, unpack):
        out = a * dt.ones(1)  # only the factor is needed
    assert calls == ["pack"]
    out.backward()
    assert calls == ["pack", "unpack"] and a.grad.item() == 1.0


def test_results_inputs_and_functions_are_packed():
    kept = []

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            out = x * x
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, out = ctx.saved_tensors
            assert out.grad_fn.name() == "SquareBackward" and x.requires_grad
            return 2 * x * g

    a = leaf(3.0)
    with graph.saved_tensors_hooks(lambda t: kept.append(t) or t.numpy().copy(), dt.from_numpy):
        out = Square.apply(a).exp()
        values, _ = (a * 2).clone().max(0)
    assert len(kept) >= 3
    out.backward()
    values.backward()
    assert a.grad.item() == pytest.approx(6 * 2.718281828**9 + 2, rel=1e-5)


@pytest.mark.parametrize("fn", [lambda a: (a * a * a).sum(), lambda a: a.exp().sum()])
def test_second_derivatives_go_through_packed_tensors(fn):
    a = leaf(0.5)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        out = fn(a)
    (g,) = dt.autograd.grad(out, a, create_graph=True)
    (second,) = dt.autograd.grad(g, a)
    want_g, want = dt.autograd.grad(fn(a), a, create_graph=True), None
    (want,) = dt.autograd.grad(want_g[0], a)
    assert g.item() == want_g[0].item() and second.item() == want.item()


def test_packed_tensors_are_freed_and_need_no_version():
    a = leaf(2.0)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        b = a * 1
        out = (b * b).exp()
    b.detach().zero_()
    out.detach().zero_()
    out.sum().backward()
    assert a.grad.item() == pytest.approx(4 * 2.718281828**4, rel=1e-5)
    with pytest.raises(AutogradError, match="a second time"):
        out.sum().backward()


def test_the_innermost_hooks_count():
    seen = []

    def hooks(name):
        return graph.saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    a, ones = leaf(1.0), dt.ones(1)
    with hooks("outer"):
        with hooks("inner"):
            a * ones
        a * ones
    a * ones
    assert seen == ["inner", "outer"]


def test_what_hooks_may_not_do():
    a = leaf(2.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        out = a * a
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        out.backward()
    with pytest.raises(AutogradError, match="modifying its input in place"):
        with graph.saved_tensors_hooks(lambda t: t.zero_(), lambda t: t):
            a * a


def test_hooks_can_be_refused():
    a = leaf(2.0)
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(AutogradError, match="not here"):
            with graph.save_on_cpu():
                pass
    with pytest.raises(AutogradError, match="nor here"):
        with graph.save_on_cpu(), graph.disable_saved_tensors_hooks("nor here"):
            pass
    with graph.save_on_cpu():
        out = a * a
    out.backward()
    assert a.grad.item() == 4.0


def test_saved_tensors_may_be_written_to_where_that_is_allowed():
    a = leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors() as saved:
        e = a.exp()
        copy = a.clone()
        out = e.sum() + (copy * copy).sum()
        want = e.detach().clone() + 2 * a.detach()
        e.zero_()
        copy.fill_(7.0)
        out.backward()
        assert a.grad.tolist() == want.tolist()
        later = (a * a).sum()
        saved.clear()
    with pytest.raises(AutogradError, match="outside of the 'allow_mutation"):
        later.backward()
