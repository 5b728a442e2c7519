"""``linearize``: the function runs once, and its derivative is that of ``jvp``."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import tree
from disttrain.autograd import Function
from disttrain.errors import AutogradError, CaptureError
from disttrain.func import grad, jacfwd, jvp, linearize, vmap


def assert_close(a, b, within):
    assert a.shape == b.shape and dt.allclose(a, b, within, within), (a, b)


def several(x, w):
    y = dt.softmax(dt.nn.functional.layer_norm(x @ w, (4,)), -1).cumsum(0)
    s, _ = y.sort(0)
    part = dt.zeros(3, 4, dtype=x.dtype)
    part[0] = s[0]
    part[1:] = s[1:].exp()
    a = s * 1
    a.mul_(2)
    a[0] += x.sum()
    return {"a": a @ dt.linalg.inv(w.T @ w + dt.eye(4)), "b": (part.max(0)[0], dt.ones(2)),
            "c": (x * 1j).abs().prod()}  # fmt: skip


def inputs():
    dt.manual_seed(1)
    return dt.randn(3, 5), dt.randn(5, 4)


def same(ours, wanted):
    assert tree.structure(ours) == tree.structure(wanted)
    for a, b in zip(tree.leaves(ours), tree.leaves(wanted), strict=True):
        assert_close(a, b, 1e-4)


def test_it_moves_tangents_as_jvp_and_runs_the_function_once():
    calls = []
    primals = inputs()
    value, push = linearize(lambda *a: calls.append(1) or several(*a), *primals)
    same(value, several(*primals))
    for _ in range(2):
        tangents = tuple(dt.randn(*p.shape) for p in primals)
        same(push(*tangents), jvp(several, primals, tangents)[1])
    many = tuple(dt.randn(7, *p.shape) for p in primals)
    same(vmap(push)(*many), vmap(lambda *t: jvp(several, primals, t)[1])(*many))
    assert len(calls) == 1


def once(x):
    return (x.sin() * x).cumprod(0)


def by_jvp(x):
    return jvp(once, (x,), (dt.ones_like(x),))[1].sum()


def by_linearize(x):
    return linearize(once, x)[1](dt.ones_like(x)).sum()


@pytest.mark.parametrize(
    "around", [grad, jacfwd, lambda f: vmap(grad(f)), lambda f: grad(lambda x: vmap(f)(x).sum())]
)
def test_it_stands_inside_other_transforms(around):
    x = dt.arange(6.0).reshape(2, 3) + 0.5
    x = x if around not in (grad, jacfwd) else x[0]
    assert_close(around(by_linearize)(x), around(by_jvp)(x), 1e-4)


def test_results_stay_in_the_graph_of_primals_and_tangents():
    x = (dt.arange(3.0) + 0.5).requires_grad_()
    by_linearize(x).backward()
    assert_close(x.grad, grad(by_jvp)(x.detach()), 1e-4)
    t = dt.ones(3, requires_grad=True)
    linearize(once, x.detach())[1](t).sum().backward()
    assert t.grad.shape == (3,)


class Cube(Function):
    @staticmethod
    def forward(x, y):
        return x**3, y * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx, tx, ty):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * tx, ty * 2


class Doubled(Function):
    @staticmethod
    def forward(x):
        return x.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def jvp(ctx, t):
        return t.mul_(2)


def test_custom_functions_give_their_own():
    x = dt.tensor([1.0, 2.0])
    push = linearize(lambda a: Cube.apply(a, a.detach()), x)[1]
    assert [t.tolist() for t in push(dt.ones(2))] == [[3.0, 12.0], [0.0, 0.0]]
    assert [t.tolist() for t in push(dt.ones(2) * 2)] == [[6.0, 24.0], [0.0, 0.0]]
    with pytest.raises(CaptureError, match="in place"):
        linearize(lambda a: Doubled.apply(a * 1), x)


def test_tangents_must_be_as_the_primals():
    push = linearize(lambda d: d["a"] + d["b"], {"a": dt.ones(2), "b": dt.ones(2)})[1]
    for wrong in ({"a": dt.ones(2)}, {"a": dt.ones(2), "b": dt.ones(3)},
                  {"a": dt.ones(2), "b": dt.ones(2).double()}):  # fmt: skip
        with pytest.raises(AutogradError, match="linearize"):
            push(wrong)


def test_what_does_not_depend_on_the_primals_stays():
    (a, b), push = linearize(lambda x: (x.argmax(), dt.ones(3)), dt.ones(2))
    assert b.tolist() == [1.0] * 3
    moved = push(dt.ones(2))
    assert moved[1].tolist() == [0.0] * 3 and moved[0].item() == 0
