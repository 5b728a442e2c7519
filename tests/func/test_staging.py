"""What is staged: shapes and types alone, the world around as arguments, and what is refused."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import CaptureError
from disttrain.func.staging import known_results, stage

F = ((2, 3), dt.ones(1).meta()[1])


def test_python_runs_once_without_numbers():
    ran = []

    def fn(a, b):
        ran.append(a.shape)
        return {"out": dt.relu(a @ b.mT) + 1, "same": a}

    found = stage(fn, [F, F])
    assert ran == [(2, 3)] and set(found.form) == {"out", "same"}
    assert [tuple(m[0]) for m in found.results] == [(2, 2), (2, 3)]
    a, b = dt.rand(2, 3), dt.rand(2, 3)
    out, same = found.body(a, b)
    assert dt.equal(out, dt.relu(a @ b.mT) + 1) and same is a
    assert dt.equal(dt.tensor(found.body.run()([a.array, b.array])[0]), out)


def test_the_world_around_becomes_arguments():
    w = dt.rand(2, 3, requires_grad=True)
    found = stage(lambda a: (a * w).sum() + w, [F])
    assert len(found.consts) == 1 and found.consts[0] is w
    closed = stage(lambda a: a * dt.ones(3), [F], closed=True)
    assert not closed.consts and len(closed.body.held) == 1
    a = dt.rand(2, 3)
    assert dt.equal(closed.body(a)[0], a)


def test_derivatives_and_batches_inside():
    found = stage(lambda a: func.grad(lambda v: (v * v).sum())(a), [F])
    a = dt.rand(2, 3)
    assert dt.equal(found.body(a)[0], 2 * a)
    found = stage(lambda a: func.vmap(lambda v: v.sum())(a), [F])
    assert dt.allclose(found.body(a)[0], a.sum(1))


class Twice(dt.autograd.Function):
    """A derivative that is not that of the forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 5


def test_custom_functions_keep_their_rules():
    def f(x):
        return func.scan(lambda c, v: (Twice.apply(c) + v, None), x.sum(), dt.zeros(3))[0]

    x = dt.ones(2, requires_grad=True)
    f(x).backward()
    assert f(x).item() == 16.0 and x.grad.tolist() == [125.0, 125.0]


def test_detached_values_are_constants():
    g = func.grad(lambda v: func.scan(lambda c, x: (c + c.detach() * x, x), v, dt.ones(2))[0])
    assert g(dt.tensor(3.0)).item() == 1.0


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda a: a if a.sum() > 0 else -a, "used as numbers"),
        (lambda a: a[a > 0], "used as numbers"),
        (lambda a: dt.bernoulli(dt.sigmoid(a)), "random numbers"),
        (lambda a: 3, "tensors are needed"),
    ],
)
def test_what_is_refused(fn, message):
    with pytest.raises(CaptureError, match=message):
        stage(fn, [F])


def test_a_value_does_not_outlive_its_body():
    kept = []
    stage(lambda a: kept.append(a) or a, [F])
    with pytest.raises(CaptureError, match="after the transform returned"):
        kept[0] + 1


def test_results_that_depend_on_no_argument_have_values():
    fixed = dt.tensor([1.0, 2.0])
    found = known_results(lambda a: (a.sum(), fixed + 1, a), [F])
    assert [tuple(meta[0]) for meta, _ in found] == [(), (2,), (2, 3)]
    assert found[0][1] is None and found[2][1] is None
    assert found[1][1].tolist() == [2.0, 3.0]
    assert known_results(lambda a: a * 2, [F])[0][1] is None


def test_what_is_computed_without_grad_is_constant():
    def step(x):
        with dt.no_grad():
            y = x * 2
        return [x * y]

    x = dt.tensor(3.0, requires_grad=True)
    for keeps, slope in ((True, 6.0), (False, 12.0)):
        x.grad = None
        stage(step, [x.meta()[:2]], keeps_mode=keeps).body(x)[0].backward()
        assert x.grad.tolist() == slope
