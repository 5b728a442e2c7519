"""Hooks of modules."""

import numpy as np
import pytest

from disttrain import core, nn


def tensor(*values):
    return core.wrap(np.array(values, np.float64))


class Double(nn.Module):
    def forward(self, x, scale=2.0):
        return x * scale


class Two(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "product": [x * y]}


def test_pre_hook_sees_and_replaces_arguments():
    m = Double()
    handle = m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    assert m(tensor(1.0)).tolist() == [4.0]
    m.register_forward_pre_hook(lambda mod, args: args[0] * 10)
    assert m(tensor(1.0)).tolist() == [40.0]
    handle.remove()
    assert m(tensor(1.0)).tolist() == [20.0]


def test_pre_hook_with_kwargs():
    m = Double()
    m.register_forward_pre_hook(
        lambda mod, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True
    )
    assert m(tensor(1.0), scale=4.0).tolist() == [5.0]
    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(TypeError, match="new args, new kwargs"):
        m(tensor(1.0), scale=4.0)


def test_forward_hook_order_prepend_and_replacement():
    m, seen = Double(), []
    m.register_forward_hook(lambda mod, args, out: seen.append("a"))
    m.register_forward_hook(lambda mod, args, out: seen.append("b"), prepend=True)
    m.register_forward_hook(lambda mod, args, kwargs, out: out + kwargs["scale"], with_kwargs=True)
    assert m(tensor(1.0), scale=3.0).tolist() == [6.0]
    assert seen == ["b", "a"]


def test_always_call_runs_after_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError("inner")

    m, seen = Broken(), []
    m.register_forward_hook(lambda *a: seen.append("plain"))
    m.register_forward_hook(lambda mod, args, out: seen.append(out), always_call=True)
    with pytest.raises(KeyError, match="inner"):
        m(1)
    assert seen == [None]


def test_without_hooks_again_the_fast_path_returns():
    m = Double()
    with m.register_forward_hook(lambda *a: None):
        assert m._hooks is not None
    m(tensor(1.0))
    assert m._hooks is None
    m.register_state_dict_pre_hook(lambda *a: None)
    assert m._hooks is None


def test_full_backward_hooks_see_both_gradients():
    m, seen = Two(), []
    m.register_full_backward_pre_hook(lambda mod, g: seen.append(("pre", [x.tolist() for x in g])))
    m.register_full_backward_hook(
        lambda mod, gi, go: seen.append(("post", [x.tolist() for x in gi]))
    )
    x, y = tensor(2.0).requires_grad_(), tensor(3.0).requires_grad_()
    out = m(x, y)
    (out["sum"] * 10 + out["product"][0]).backward()
    assert seen == [("pre", [[10.0], [1.0]]), ("post", [[13.0], [12.0]])]
    assert (x.grad.tolist(), y.grad.tolist()) == ([13.0], [12.0])


def test_full_backward_hooks_may_replace_gradients():
    m = Double()
    m.register_full_backward_pre_hook(lambda mod, g: (g[0] * 3,))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] + go[0],))
    x = tensor(1.0).requires_grad_()
    m(x).backward()
    assert x.grad.tolist() == [9.0]
    m.register_full_backward_hook(lambda mod, gi, go: (1, 2))
    with pytest.raises(TypeError, match="returned 2"):
        m(x).backward()


def test_full_backward_hook_without_differentiable_inputs():
    m, seen = nn.Linear(1, 1, bias=False), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go[0].tolist())))
    m(core.wrap(np.ones((1, 1), np.float32))).sum().backward()
    assert seen == [((None,), [[1.0]])]


def test_hooks_must_be_callable():
    with pytest.raises(TypeError, match="must be callable"):
        Double().register_forward_hook(3)


def test_unused_output_gives_zeros():
    m, seen = Two(), []
    m.register_full_backward_pre_hook(lambda mod, g: seen.append([x.tolist() for x in g]))
    x = tensor(2.0).requires_grad_()
    m(x, x)["sum"].backward()
    assert seen == [[[1.0], [0.0]]] and x.grad.tolist() == [2.0]
