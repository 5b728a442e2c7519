"""Which writes a gradient survives: a rule keeps what it needs, as PyTorch's does. A write to what
is not kept is fine; a write to what is kept is refused, by name."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import AutogradError

F = dt.nn.functional
A = [[0.7, 0.5, 0.3], [0.2, 0.9, 0.4], [0.6, 0.8, 0.1]]
B = [[0.3, 0.2, 0.6], [0.7, 0.4, 0.5], [0.1, 0.9, 0.8]]

# what the rule keeps: of "a" (first argument), "b" (second), "out" (the result)
KEPT = {
    "add": (lambda a, b: a + b, ""),
    "sub": (lambda a, b: a - b, ""),
    "mul": (lambda a, b: a * b, "a b"),
    "div": (lambda a, b: a / b, "a b"),
    "pow": (lambda a, b: a**b, "a b out"),
    "maximum": (dt.maximum, "a b"),
    "logaddexp": (dt.logaddexp, "a b"),
    "atan2": (dt.atan2, "a b"),
    "hypot": (dt.hypot, "a b out"),
    "matmul": (dt.matmul, "a b"),
    "linear": (F.linear, "a b"),
    "where": (lambda a, b: dt.where(dt.eye(3) > 0, a, b), ""),
    "cat": (lambda a, b: dt.cat([a, b]), ""),
    "lerp": (lambda a, b: dt.lerp(a, b, 0.5), ""),
    "scatter_add": (lambda a, b: a.scatter_add(0, dt.zeros(3, 3, dtype=dt.int64), b), ""),
    "index_add": (lambda a, b: a.index_add(0, dt.tensor([2, 0, 1]), b), ""),
    "index_put": (lambda a, b: a.index_put((dt.tensor([0, 1, 2]),), b), ""),
    "masked_scatter": (lambda a, b: a.masked_scatter(dt.eye(3) > 0, b), ""),
    "neg": (lambda a, b: -a, ""),
    "exp": (lambda a, b: a.exp(), "out"),
    "log": (lambda a, b: a.log(), "a"),
    "sqrt": (lambda a, b: a.sqrt(), "out"),
    "rsqrt": (lambda a, b: a.rsqrt(), "out"),
    "sin": (lambda a, b: a.sin(), "a"),
    "tan": (lambda a, b: a.tan(), "out"),
    "tanh": (lambda a, b: a.tanh(), "out"),
    "sigmoid": (lambda a, b: a.sigmoid(), "out"),
    "relu": (lambda a, b: a.relu(), "out"),
    "abs": (lambda a, b: a.abs(), "a"),
    "square": (lambda a, b: a.square(), "a"),
    "reciprocal": (lambda a, b: a.reciprocal(), "out"),
    "erf": (lambda a, b: a.erf(), "a"),
    "erfinv": (lambda a, b: a.erfinv(), "a"),
    "sign": (lambda a, b: a.sign(), ""),
    "floor": (lambda a, b: a.floor(), ""),
    "clamp": (lambda a, b: a.clamp(0, 0.5), "a"),
    "x * 2": (lambda a, b: a * 2, ""),
    "x / 2": (lambda a, b: a / 2, ""),
    "2 / x": (lambda a, b: 2 / a, ""),
    "x ** 2": (lambda a, b: a**2, "a"),
    "sum": (lambda a, b: a.sum(0), ""),
    "mean": (lambda a, b: a.mean(0), ""),
    "amax": (lambda a, b: a.amax(0), "a out"),
    "max": (lambda a, b: a.max(0)[0], ""),
    "cumsum": (lambda a, b: a.cumsum(0), ""),
    "softmax": (lambda a, b: a.softmax(0), "out"),
    "log_softmax": (lambda a, b: a.log_softmax(0), "out"),
    "gather": (lambda a, b: a.gather(0, dt.zeros(1, 3, dtype=dt.int64)), ""),
    "x[index]": (lambda a, b: a[dt.tensor([0, 2])], ""),
    "x[mask]": (lambda a, b: a[dt.eye(3) > 0], ""),
    "silu": (lambda a, b: F.silu(a), "a"),
    "gelu": (lambda a, b: F.gelu(a), "a"),
    "leaky_relu": (lambda a, b: F.leaky_relu(a), "a"),
    "dropout": (lambda a, b: F.dropout(a, 0.5), ""),
    "max_pool1d": (lambda a, b: F.max_pool1d(a[None], 2), "a"),
    "avg_pool1d": (lambda a, b: F.avg_pool1d(a[None], 2), ""),
    "layer_norm": (lambda a, b: F.layer_norm(a, (3,)), "a"),
    "pad": (lambda a, b: F.pad(a, (1, 1)), ""),
}


def run(name, written, which):
    """Gradients of a weighted sum after a write to ``written``; ``which``: who requires grad."""
    dt.manual_seed(0)
    leaves = [dt.tensor(v, requires_grad=w in which) for v, w in ((A, "a"), (B, "b"))]
    a, b = (x * 1 if x.requires_grad else x.clone() for x in leaves)
    out = KEPT[name][0](a, b)
    if written is not None:
        {"a": a, "b": b, "out": out}[written].add_(1)
    out.sum().backward()
    return [None if x.grad is None else x.grad.tolist() for x in leaves]


@pytest.mark.parametrize("written", ["a", "b", "out"])
@pytest.mark.parametrize("name", KEPT)
def test_a_write_to_what_no_rule_keeps_changes_nothing(name, written):
    kept = KEPT[name][1].split()
    if written not in kept:
        assert run(name, written, "ab") == run(name, None, "ab")


@pytest.mark.parametrize("name", [n for n, (_, kept) in KEPT.items() if kept])
def test_a_write_to_what_a_rule_keeps_is_refused(name):
    refused = 0
    for written in KEPT[name][1].split():
        try:
            run(name, written, "ab")
        except AutogradError as error:
            assert "modified by an inplace operation" in str(error)
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("name", "written", "which"),
    [("mul", "a", "a"), ("mul", "b", "b"), ("matmul", "a", "a"), ("matmul", "b", "b"),
     ("linear", "a", "a"), ("linear", "b", "b"), ("pow", "out", "a"), ("div", "a", "a")],
)  # fmt: skip
def test_only_what_the_wanted_gradients_read_is_kept(name, written, which):
    assert run(name, written, which) == run(name, None, which)


def test_a_pooled_image_may_be_activated_in_place():
    x = dt.arange(16.0).reshape(1, 1, 4, 4).clone().requires_grad_()
    F.relu(F.max_pool2d(x * 1, 2), inplace=True).sum().backward()
    assert x.grad.sum().item() == 4 and x.grad[0, 0, 3, 3].item() == 1


VIEWS = {
    "row": lambda y: y[0], "turned": lambda y: y.mT, "twice": lambda y: y.mT[0],
    "longer": lambda y: y[None],
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [n for n, (_, kept) in KEPT.items() if kept == "out"])
def test_a_write_to_a_view_of_a_kept_result_is_refused_when_only_the_view_is_left(name, view):
    """Nobody but the view holds the result: its rule reads that memory all the same."""
    x = dt.tensor(A, requires_grad=True)
    part = VIEWS[view](KEPT[name][0](x * 1, None))
    part.add_(1)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        part.sum().backward()


@pytest.mark.parametrize("pool", [F.max_pool2d, lambda x, n: F.max_pool2d(F.relu(x), n)])
def test_a_view_of_a_pooled_image_may_be_written_to(pool):
    """Places of the largest values follow from the result as it was."""
    x = dt.arange(16.0).reshape(1, 1, 4, 4).clone().requires_grad_()
    tokens = pool(x * 1, 2).flatten(2).transpose(1, 2)
    tokens += dt.ones(1, 4, 1)
    tokens.sum().backward()
    assert x.grad.sum().item() == 4 and x.grad[0, 0, 3, 3].item() == 1


def test_a_power_may_be_overwritten():
    x = dt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x.pow(2)
    y[0] = 0
    y.sum().backward()
    assert x.grad.tolist() == [0, 4, 6]


def test_the_old_value_is_kept_only_where_it_is_read():
    """y.mul_(w): w's gradient is the old y, y's is w, whatever comes after."""
    w = dt.tensor([2.0, 3.0], requires_grad=True)
    x = dt.tensor([5.0, 7.0], requires_grad=True)
    y = x * 1
    y.mul_(w)
    y.zero_()
    y.add_(1)
    z = x * 1
    z.mul_(w).add_(z.detach()).relu_()
    (y + z).sum().backward()
    assert w.grad.tolist() == [5, 7] and x.grad.tolist() == [2, 3]


MADE = {
    **{
        name: (lambda x, name=name: getattr(x, name)())
        for name in """exp sin tanh sigmoid sqrt rsqrt log reciprocal erf square prod std var norm
        mean""".split()
    },
    **{
        f"{name} 0": (lambda x, name=name: getattr(x, name)(0))
        for name in "softmax cumsum cumprod prod logsumexp std var sum amax".split()
    },
    "power": lambda x: x**3, "product": lambda x: x * x, "matrices": lambda x: x @ x,
    "quotient": lambda x: 1 / x, "outer": lambda x: dt.outer(x[0], x[1]),
    "batches": lambda x: dt.bmm(x[None], x[None])[0], "gelu": dt.nn.functional.gelu,
    "norm of rows": lambda x: dt.nn.functional.layer_norm(x, (2,)),
}  # fmt: skip
WRITES = {
    "mul_": lambda y: y.mul_(2), "add_": lambda y: y.add_(1), "zero_": lambda y: y.zero_(),
    "exp_": lambda y: y.exp_(), "square": lambda y: y.mul_(y), "div_": lambda y: y.div_(3),
    "part": lambda y: y[..., :1].fill_(3.0) if y.ndim else y.fill_(3.0),
    "clamp_": lambda y: y.clamp_(max=0.9),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_a_write_to_what_was_used_is_refused_or_leaves_the_gradient_right(name):
    at = np.array([[1.1, 2.3], [0.5, 1.7]])

    def loss(x, write, to_result):
        y = x * 1.0
        z = MADE[name](y)
        early = z.sum()
        write(z if to_result else y)
        return early + z.sum() + y.sum()

    def difference(i, write, to_result):
        sides = []
        for step in (1e-6, -1e-6):
            moved = at.copy()
            moved.reshape(-1)[i] += step
            with dt.no_grad():
                sides.append(loss(dt.tensor(moved), write, to_result).item())
        return (sides[0] - sides[1]) / 2e-6

    for write in WRITES.values():
        for to_result in (False, True):
            x = dt.tensor(at, requires_grad=True)
            try:
                loss(x, write, to_result).backward()
            except AutogradError as error:
                assert "modified by an inplace operation" in str(error)
                continue
            want = [difference(i, write, to_result) for i in range(4)]
            assert np.allclose(x.grad.reshape(-1).tolist(), want, rtol=1e-5, atol=1e-6)
