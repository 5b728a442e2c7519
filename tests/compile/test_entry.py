"""Every optimizer in a compiled step: the numbers of the eager one, while its rate changes."""

import sys

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn, optim

KINDS = [getattr(optim, n) for n in optim.__all__ if n[0].isupper()]
KINDS = [k for k in KINDS if k not in (optim.Optimizer, optim.LBFGS, optim.SparseAdam)]


class Own(optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        with dt.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-float(group["lr"]))


def losses(kind, compiled, lr):
    dt.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 2, bias=False))
    opt = kind(net.parameters(), lr=lr)
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.8)
    x, y = dt.randn(5, 4), dt.randn(5, 2)

    def step(x, y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    run, out = dt.compile(step) if compiled else step, []
    for _ in range(6):
        out.append(run(x, y).item())
        schedule.step()
    return out


@pytest.mark.parametrize("kind", [*KINDS, Own], ids=lambda k: k.__name__)
def test_a_compiled_step_follows_its_schedule(kind):
    eager = losses(kind, False, 0.02)
    np.testing.assert_array_equal(losses(kind, True, 0.02), eager)


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, Own], ids=lambda k: k.__name__)
def test_a_rate_that_is_a_tensor_is_followed_too(kind):
    eager, compiled = (losses(kind, c, dt.tensor(0.02, dtype=dt.float64)) for c in (False, True))
    np.testing.assert_array_equal(compiled, eager)


def test_replays_that_go_on_failing_are_told():
    def at(x, i):
        try:
            return x[i].sum()
        except IndexError:
            return x.sum() * 0

    run, x = dt.compile(at), dt.arange(4).float()
    assert [run(x, dt.tensor([i])).item() for i in (1, 2, 9, 3)] == [1, 2, 0, 3]
    told = run.explain()
    assert "1 captured, 0 eager" in told
    assert "1 calls ran eagerly after a replay that failed" in told
    with pytest.warns(UserWarning, match="runs eagerly: a replay raised"):
        for _ in range(8):
            assert run(x, dt.tensor([9])).item() == 0
    assert "0 captured, 1 eager" in run.explain()
    assert run(x, dt.tensor([3])).item() == 3


def test_calls_under_a_profile_function_are_told():
    run = dt.compile(lambda x: x * 2)
    before = sys.getprofile()
    sys.setprofile(lambda *of: None)
    try:
        run(dt.ones(2))
    finally:
        sys.setprofile(before)
    assert "1 calls ran eagerly while a profile function was set" in run.explain()
