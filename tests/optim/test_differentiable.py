"""``differentiable=True``: the numbers of an ordinary step, and gradients through it."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import optim
from disttrain.core import wrap
from support.cases.optimizers import CASES

ELEMENTWISE = [(n, {k: v for k, v in a.items() if k != "foreach"}) for n, a in CASES]
named = pytest.mark.parametrize("name, args", ELEMENTWISE, ids=lambda v: v if v == str(v) else "")


@named
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_a_recorded_step_computes_the_same(name, args, dtype):
    rng = np.random.default_rng(0)
    start = rng.standard_normal((3, 2)).astype(dtype)
    gradients = [rng.standard_normal((3, 2)) for _ in range(8)]
    if dtype == "c16":
        start = start + 1j * rng.standard_normal((3, 2))
        gradients = [g + 1j * rng.standard_normal((3, 2)) for g in gradients]
    results = []
    for recorded in (False, True):
        leaf = wrap(start.copy()).requires_grad_()
        p = leaf.clone() if recorded else leaf
        opt = getattr(optim, name)([p], differentiable=recorded, **args)
        for g in gradients:
            p.grad = wrap(g)
            opt.step()
        results.append(p)
    np.testing.assert_allclose(results[0].array, results[1].array, rtol=1e-9, atol=1e-12)
    assert results[1].grad_fn is not None
    one = opt.state[p]
    assert name == "SGD" or one["step"].item() == 8


@named
def test_gradients_go_through_the_step(name, args):
    """The derivative of what two steps give by where they began and by their gradients."""
    rng = np.random.default_rng(1)
    p0, g0, g1 = (wrap(rng.standard_normal(4) + 3).requires_grad_() for _ in range(3))

    def stepped(p0, g0, g1):
        p = p0.clone()
        opt = getattr(optim, name)([p], differentiable=True, **args)
        for g in (g0, g1):
            p.grad = g
            opt.step()
        return p

    assert dt.autograd.gradcheck(stepped, (p0, g0, g1), eps=1e-6, atol=1e-5)


def test_the_rate_may_be_learnt():
    lr = wrap(np.asarray(0.1)).requires_grad_()
    start = wrap(np.array([1.0, -2.0])).requires_grad_()
    p = start.clone()
    opt = optim.SGD([p], lr=lr, differentiable=True)
    p.grad = (2 * start).detach()
    opt.step()
    (p * p).sum().backward()
    want = -2 * (start.array * (1 - 0.2)) @ (2 * start.array)
    np.testing.assert_allclose(lr.grad.array, want)


def test_a_leaf_cannot_be_changed_by_a_recorded_step():
    p = wrap(np.ones(2)).requires_grad_()
    p.grad = wrap(np.ones(2))
    with pytest.raises(RuntimeError, match="leaf"):
        optim.SGD([p], differentiable=True).step()
