"""Optimizers that are handed gradients: what is stepped, what is left as it was."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import optim
from disttrain.distributed.optim.functional import as_functional_optim, step_some
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def params(count=2):
    return [dt.ones(1, requires_grad=True) for _ in range(count)]


def test_only_those_with_a_gradient_are_stepped_and_their_own_stays():
    p, q, r = params(3)
    p.grad, q.grad = dt.full((1,), 100.0), dt.full((1,), 100.0)
    opt = optim.Adam([{"params": [p, q], "lr": 0.5}, {"params": [r], "lr": 0.25}])
    step_some(opt, {q: dt.ones(1), r: dt.ones(1)})
    assert (
        p.tolist() == [1.0] and q.item() == pytest.approx(0.5) and r.item() == pytest.approx(0.75)
    )
    assert p.grad.item() == q.grad.item() == 100.0 and r.grad is None
    assert [g["params"] for g in opt.param_groups] == [[p, q], [r]]
    step_some(opt, {q: dt.ones(1)})
    assert opt.state[q]["step"].item() == 2 and opt.state[r]["step"].item() == 1
    assert p not in opt.state


def test_after_an_error_all_is_as_before():
    class Fails(optim.SGD):
        def step(self, closure=None):
            raise ZeroDivisionError

    (p, q) = params()
    p.grad = dt.ones(1)
    opt = Fails([p, q], lr=0.1)
    with pytest.raises(ZeroDivisionError):
        step_some(opt, {p: dt.zeros(1)})
    assert opt.param_groups[0]["params"] == [p, q] and p.grad.item() == 1.0


def test_parameters_come_with_their_gradients():
    opt = as_functional_optim(optim.SGD, lr=0.5, momentum=0.9)
    p, q = params()
    opt.step_params([p, q], [dt.ones(1), None])
    opt.step_param(p, dt.ones(1))
    opt.step_param(q, None)
    assert p.item() == pytest.approx(1 - 0.5 - 0.5 * 1.9) and q.tolist() == [1.0]
    assert list(opt.state) == [p] and opt.param_groups[0]["params"] == []
    opt.param_groups[0]["lr"] = 0.0
    before = p.item()
    opt.step_param(p, dt.ones(1))
    assert p.item() == before
    with pytest.raises(ValueError):
        opt.step_params([p, q], [dt.ones(1)])


def test_it_follows_a_plain_optimizer():
    (p, q) = params()
    plain, handed = optim.AdamW([p], lr=0.1), as_functional_optim(optim.AdamW, lr=0.1)
    for k in range(3):
        g = dt.full((1,), k + 1.0)
        p.grad = g
        plain.step()
        handed.step_param(q, g)
    assert p.tolist() == q.tolist()


@pytest.mark.parametrize("wrong", [object, "SGD", optim.SGD([dt.ones(1)], lr=0.1)])
def test_classes_of_optimizers_alone(wrong):
    with pytest.raises(ConfigError, match="does not have a functional counterpart"):
        as_functional_optim(wrong, lr=0.1)
