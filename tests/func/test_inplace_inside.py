"""In-place operations inside vmap, jvp and their compositions: written tensors, views made before
and after, buffers made inside. Expectations: the same function without writes, or written out."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import AutogradError, CaptureError


def through_views(x):
    y = x * 1
    tail, flat = y[1:], y.view(-1)
    tail.mul_(3.0)
    flat.add_(tail.sum())
    return y


def through_views_plainly(x):
    y = dt.cat([x[:1], x[1:] * 3.0])
    return y + y[1:].sum()


def view_made_before(x):
    y = x * 1
    v = y[1:]
    y.mul_(x)
    return v


def running(x):
    y = x * 1
    for i in range(1, 3):
        y[i] += y[i - 1]
    return y


def buffer(x):
    b = dt.zeros_like(x)
    b.copy_(x)
    b[0] = x[1]
    return b.mul_(x)


def without_diagonal(x):
    y = x.outer(x)
    y.diagonal().zero_()
    return y


def pieces(x):
    y = x * 1
    a, b, c = y.split(1)
    y.mul_(2.0)
    return a + b * c


CASES = {
    "through views": (through_views, through_views_plainly),
    "view made before": (view_made_before, lambda x: (x * x)[1:]),
    "running sum": (running, lambda x: x.cumsum(0)),
    "buffer": (buffer, lambda x: dt.stack([x[1], x[1], x[2]]) * x),
    "diagonal": (without_diagonal, lambda x: x.outer(x) * (1 - dt.eye(3))),
    "pieces": (pieces, lambda x: (x[:1] + x[1:2] * x[2:] * 2) * 2),
    "activation": (lambda x: dt.nn.functional.silu(x * 1, inplace=True), dt.nn.functional.silu),
    "fill": (lambda x: (x * 1).fill_(3.0), lambda x: x * 0 + 3),
    "mask": (lambda x: (x * 1).masked_fill_(x > 1, 0.0), lambda x: dt.where(x > 1, 0.0, x)),
    "shape": (lambda x: (x * 1).unsqueeze_(0).mul_(2), lambda x: x[None] * 2),
    "index_add": (
        lambda x: (x * 1).index_add_(0, dt.tensor([0, 0]), x[:2]),
        lambda x: dt.stack([2 * x[0] + x[1], x[1], x[2]]),
    ),
}  # fmt: skip
TRANSFORMS = {
    "vmap": lambda f, x: func.vmap(f)(x),
    "vmap twice": lambda f, x: func.vmap(func.vmap(f))(dt.stack([x, x + 1])),
    "jvp": lambda f, x: dt.cat([t.reshape(-1) for t in func.jvp(f, (x[0],), (x[1],))]),
    "jacrev": lambda f, x: func.jacrev(f)(x[0]),
    "jacfwd": lambda f, x: func.jacfwd(f)(x[0]),
    "vmap of grad": lambda f, x: func.vmap(func.grad(lambda r: (f(r) ** 2).sum()))(x),
    "grad of vmap": lambda f, x: func.grad(lambda m: (func.vmap(f)(m) ** 2).sum())(x),
    "hessian": lambda f, x: func.hessian(lambda r: (f(r) ** 3).sum())(x[0]),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", CASES)
def test_as_without_writes(name, transform):
    written, plain = CASES[name]
    x = dt.tensor([[0.5, 1.5, -2.0], [3.0, -1.0, 0.25]], dtype=dt.float64)
    found, wanted = TRANSFORMS[transform](written, x), TRANSFORMS[transform](plain, x)
    assert dt.allclose(found, wanted, rtol=1e-10, atol=1e-12)
    assert x.tolist() == [[0.5, 1.5, -2.0], [3.0, -1.0, 0.25]]


def test_what_a_rule_keeps_is_not_overwritten_unnoticed():
    def f(x):
        y = x * 1
        z = y * y
        y.mul_(2.0)
        return z.sum()

    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        func.vmap(func.grad(f))(dt.ones(2, 3))


def test_what_detach_shares_is_not_written_to_unnoticed():
    def f(x):
        y = x * 1
        d = y.detach()
        y.mul_(2.0)
        return y + d

    with pytest.raises(CaptureError, match="detach"):
        func.vmap(f)(dt.ones(2, 3))
    out = func.vmap(lambda x: (x * 3).detach().add_(x))(dt.ones(2, 3))  # nobody else has it
    assert out.tolist() == [[4, 4, 4], [4, 4, 4]]


def test_a_tensor_from_outside_is_not_written_to():
    outside = dt.zeros(3)
    with pytest.raises(CaptureError, match="from outside"):
        func.vmap(lambda x: outside.add_(x))(dt.ones(2, 3))
    assert outside.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: dt.func.grad(lambda x: dt.func.vmap(f)(x).sum()),
        lambda f: dt.func.grad(lambda x: dt.func.vmap(f, in_dims=1, out_dims=1)(x).sum()),
        lambda f: dt.func.grad(lambda x: dt.func.vmap(dt.func.vmap(f))(x).sum()),
        lambda f: dt.func.grad(lambda x: dt.func.jvp(f, (x,), (x,))[0].sum()),
        lambda f: dt.func.vmap(dt.func.grad(lambda x: f(x).sum())),
    ],
)
def test_a_write_without_gradients_stays_where_it_is_in_graphs_outside(transform):
    def f(x):
        y = x * 3.0
        with dt.no_grad():
            y.add_(1.0)
            y.view(-1)[:1].mul_(2.0)
        return y * y

    def plain(x):
        x = x.clone().requires_grad_()
        f(x).sum().backward()
        return x.grad

    x = dt.tensor([[0.5, -1.0], [2.0, 0.25]])
    got = transform(f)(x)
    rows = dt.stack([plain(row) for row in x])
    columns = dt.stack([plain(x[:, i]) for i in range(2)], 1)
    singles = dt.stack([dt.stack([plain(v) for v in row]) for row in x])
    assert any(dt.allclose(got, want) for want in (rows, columns, singles, plain(x)))


def test_what_was_written_and_the_results_are_one_memory():
    x = dt.arange(6.0).reshape(2, 3)
    whole, part = func.vmap(lambda r: (r.mul_(2), r[1:]), in_dims=1)(x)
    assert x.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    x.add_(1)
    assert whole.tolist() == x.T.tolist() and part.tolist() == x[1:].T.tolist()


def test_jvp_writes_to_its_primals():
    x = dt.tensor([1.0, 2.0])
    (value, view), _ = func.jvp(lambda a: (a.mul_(3).sum(), a[:1]), (x,), (dt.ones(2),))
    assert x.tolist() == [3.0, 6.0] and value.item() == 9.0
    x.zero_()
    assert view.tolist() == [0.0]


@pytest.mark.parametrize("jacobian", [func.jacrev, func.jacfwd])
def test_other_arguments_may_be_written_to_and_stay_out_of_the_graph(jacobian):
    x, y = dt.tensor([1.0, 2.0]), dt.zeros(2)
    assert jacobian(lambda a, b: b.copy_(a) * a)(x, y).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert not y.requires_grad and type(y) is dt.Tensor
    func.grad(lambda a, b: b.copy_(a).sum())(x, y)
    assert y.tolist() == [1.0, 2.0] and not y.requires_grad


def test_every_column_of_a_jacobian_has_the_arguments_anew():
    def f(x, y, z):
        x[:2] = y
        return dt.stack([(x**2).sum(), (z**3).sum()])

    x, y, z = dt.ones(3), dt.tensor([1.0, 2.0]), dt.tensor([3.0, 4.0])
    by_y, by_z = func.jacfwd(f, argnums=(1, 2))(x, y, z)
    assert by_y.tolist() == [[2.0, 4.0], [0.0, 0.0]] and by_z.tolist() == [[0.0, 0.0], [27.0, 48.0]]
    assert x.tolist() == [1.0, 2.0, 1.0]
