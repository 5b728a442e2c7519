"""Hooks of modules."""

import copy
from collections import namedtuple

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn


def tensor(*values):
    return core.wrap(np.array(values, np.float64))


class Double(nn.Module):
    def forward(self, x, scale=2.0):
        return x * scale


class Two(nn.Module):
    def forward(self, x, y):
        return x + y, x * y


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
    with pytest.raises(TypeError, match="new_args, new_kwargs"):
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
    assert "_hooks" not in vars(m)
    m.register_state_dict_pre_hook(lambda *a: None)
    assert "_hooks" not in vars(m)


def test_full_backward_hooks_see_both_gradients():
    m, seen = Two(), []
    m.register_full_backward_pre_hook(lambda mod, g: seen.append(("pre", [x.tolist() for x in g])))
    m.register_full_backward_hook(
        lambda mod, gi, go: seen.append(("post", [x.tolist() for x in gi]))
    )
    x, y = tensor(2.0).requires_grad_(), tensor(3.0).requires_grad_()
    out = m(x, y)
    (out[0] * 10 + out[1]).backward()
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
    with pytest.raises(RuntimeError, match="got 2, but expected 1"):
        m(x).backward()


def test_full_backward_hook_without_differentiable_inputs():
    m, seen = nn.Linear(1, 1, bias=False), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go[0].tolist())))
    out = m(core.wrap(np.ones((1, 1), np.float32))).sum()
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        out.backward()
    assert seen == [((None,), [[1.0]])]
    m.register_full_backward_hook(lambda mod, gi, go: go)
    out = m(core.wrap(np.ones((1, 1), np.float32))).sum()
    with (
        pytest.warns(UserWarning, match="no inputs require gradients"),
        pytest.raises(RuntimeError, match="where no input requires gradient"),
    ):
        out.backward()


def test_hooks_must_be_callable():
    with pytest.raises(TypeError, match="must be callable"):
        Double().register_forward_hook(3)


def test_where_no_gradient_comes_there_is_none():
    """As in PyTorch: None for outputs, zeros for inputs that are tensors."""
    m, seen = Two(), []
    m.register_full_backward_pre_hook(lambda mod, go: seen.append(go))
    m.register_full_backward_hook(lambda mod, gi, go: seen.append(gi))
    x = tensor(2.0).requires_grad_()
    m(x, tensor(3.0))[0].backward()
    (first, second), (to_x, to_y) = seen
    assert first.tolist() == [1.0] and second is None
    assert (to_x.tolist(), to_y.tolist(), x.grad.tolist()) == ([1.0], [0.0], [1.0])


def test_inputs_that_need_no_gradient_stay_so_inside_the_module():
    seen = []

    class Look(nn.Module):
        def forward(self, *args):
            seen.extend(a.requires_grad for a in args)
            return args[0] * 2

    m = Look()
    m.register_full_backward_hook(lambda *a: None)
    m(tensor(1.0).requires_grad_(), tensor(1.0))
    assert seen == [True, False]


def test_backward_hooks_want_a_tensor_or_a_tuple_of_them():
    class Dict(nn.Module):
        def forward(self, x):
            return {"x": x * 2}

    m, seen = Dict(), []
    m.register_full_backward_hook(lambda *a: seen.append(1))
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors"):
        out = m(tensor(1.0).requires_grad_())
    out["x"].backward()
    assert seen == []


def test_a_named_tuple_stays_one():
    Pair = namedtuple("Pair", "sum product")

    class Named(nn.Module):
        def forward(self, a, b):
            return Pair(a + b, a * b)

    m, seen = Named(), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append([g.tolist() for g in gi]))
    out = m(tensor(2.0).requires_grad_(), tensor(3.0).requires_grad_())
    assert isinstance(out, Pair)
    (out.sum + out.product).backward()
    assert seen == [[[4.0], [3.0]]]


def test_hooks_on_the_last_operation():
    m, seen = nn.Sigmoid(), []
    handle = m.register_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    m.register_backward_hook(lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    x = tensor(0.0).requires_grad_()
    m(x).backward()
    assert seen == [([0.5], [1.0])] and x.grad.tolist() == [0.5]
    handle.remove()
    with (
        m.register_backward_hook(lambda mod, gi, go: ()),
        pytest.raises(RuntimeError, match="got 0, but expected 1"),
    ):
        m(x).backward()
    with pytest.raises(RuntimeError, match="both regular backward hooks and full backward hooks"):
        m.register_full_backward_hook(lambda *a: None)


def two_steps(x):
    return (x * 2) * 3


def list_of(x):
    return [x * 2]


def two_nodes(x):
    return x * 2, x * 3


@pytest.mark.parametrize(
    "forward, text",
    [
        (two_steps, "contains multiple autograd Nodes"),
        (list_of, "does not return a single Tensor"),
        (two_nodes, "generated by different autograd Nodes"),
    ],
)
def test_hooks_on_the_last_operation_say_what_they_do_not_see(forward, text):
    class Some(nn.Module):
        def forward(self, x):
            return forward(x)

    m = Some()
    m.register_backward_hook(lambda *a: None)
    with pytest.warns(FutureWarning, match=text):
        m(tensor(1.0).requires_grad_())


@pytest.fixture
def everywhere():
    """Registers hooks of all modules; takes them away at the end."""
    handles = []
    yield lambda kind, *args, **kwargs: handles.append(
        getattr(nn.global_hooks, f"register_module_{kind}")(*args, **kwargs)
    )
    for handle in handles:
        handle.remove()


def test_hooks_of_all_modules_come_first(everywhere):
    m, seen = Double(), []
    everywhere("forward_pre_hook", lambda mod, args: seen.append("all before"))
    everywhere("forward_hook", lambda mod, args, out: seen.append("all after") or out + 1)
    everywhere("full_backward_pre_hook", lambda mod, go: seen.append("all gradient"))
    everywhere("full_backward_hook", lambda mod, gi, go: seen.append("all gradients"))
    m.register_forward_pre_hook(lambda mod, args: seen.append("before"))
    m.register_forward_hook(lambda mod, args, out: seen.append("after"))
    m.register_full_backward_hook(lambda mod, gi, go: seen.append("gradients"))
    x = tensor(1.0).requires_grad_()
    out = m(x)
    out.backward()
    assert out.tolist() == [3.0]
    assert seen == ["all before", "before", "all after", "after",
                    "all gradient", "all gradients", "gradients"]  # fmt: skip


def test_hooks_of_all_modules_can_be_taken_away(everywhere):
    m, seen = Double(), []
    everywhere("forward_hook", lambda mod, args, kwargs, out: seen.append(1), with_kwargs=True)
    m(tensor(1.0))
    nn.global_hooks.register_module_forward_hook(lambda *a: seen.append(2)).remove()
    m(tensor(1.0))
    assert seen == [1, 1]


def test_registrations_are_seen(everywhere):
    seen = []
    everywhere("parameter_registration_hook", lambda m, name, p: seen.append(name))
    everywhere("buffer_registration_hook", lambda m, name, b: seen.append(name))
    everywhere("module_registration_hook", lambda m, name, sub: seen.append(name))
    nn.Sequential(nn.BatchNorm1d(2))
    assert seen == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked", "0"]


def test_a_registration_may_be_replaced(everywhere):
    other = nn.Identity()
    everywhere("module_registration_hook", lambda m, name, sub: other)
    assert nn.Sequential(nn.ReLU())[0] is other


def test_a_handle_knows_its_hooks():
    m = Double()
    handle = m.register_forward_hook(lambda *a: None)
    assert handle.id in handle.hooks_dict_ref()
    handle.remove()
    assert len(handle.hooks_dict_ref()) == 0


def test_hooks_are_seen_and_taken_away_under_pytorchs_names():
    m = nn.Linear(2, 2)
    seen = []
    handle = m.register_forward_hook(lambda *_: seen.append(1))
    m.register_forward_pre_hook(lambda *_: seen.append(2))
    m.register_full_backward_hook(lambda *_: seen.append(3))
    m.register_full_backward_pre_hook(lambda *_: seen.append(4))
    copied = copy.deepcopy(m)
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    assert [len(getattr(m, name)) for name in names] == [1] * 4
    assert handle.id in m._forward_hooks and callable(m._forward_hooks[handle.id])
    m._forward_hooks.clear()
    handle.remove()
    m._forward_pre_hooks = {}
    m(dt.ones(1, 2, requires_grad=True)).sum().backward()
    assert seen == [4, 3] and not m._forward_hooks and len(copied._forward_hooks) == 1
    m._forward_hooks[7] = lambda *_: seen.append(5)
    m._backward_hooks.popitem()
    m(dt.ones(1, 2))
    assert seen == [4, 3, 5] and list(m._forward_hooks) == [7]
    assert "OrderedDict" in repr(m._forward_hooks)
    with pytest.raises(KeyError):
        del m._forward_hooks[8]
