"""The Adam family by hand: steps that can be told without a computer, what is refused."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain import optim
from disttrain.errors import ConfigError


def step(kind, grads, start=1.0, **options):
    """The parameter after steps with those gradients, and its state."""
    p = dt.full((1,), start, dtype=dt.float64, requires_grad=True)
    opt = kind([p], **options)
    for g in grads:
        p.grad = dt.full((1,), g, dtype=dt.float64)
        opt.step()
    return p.item(), opt.state[p]


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.Adamax])
def test_the_first_step_has_the_size_of_the_rate_whatever_the_gradient(kind):
    options = {"weight_decay": 0.0} if kind is optim.AdamW else {}
    for g in (1e-3, 5.0, -200.0):
        p, state = step(kind, [g], lr=0.1, eps=1e-12, **options)
        assert p == pytest.approx(1.0 - math.copysign(0.1, g)) and state["step"].item() == 1.0


def test_moments_are_means_that_forget():
    _, state = step(optim.Adam, [1.0, 3.0], betas=(0.5, 0.75))
    assert state["exp_avg"].item() == pytest.approx(0.5 * (0.5 * 1) + 0.5 * 3)
    assert state["exp_avg_sq"].item() == pytest.approx(0.75 * (0.25 * 1) + 0.25 * 9)
    _, state = step(optim.Adamax, [4.0, 1.0], betas=(0.5, 0.75), eps=0.0)
    assert state["exp_inf"].item() == pytest.approx(3.0)  # 0.75 of what was the largest


def test_amsgrad_never_forgets_the_largest():
    options = {"lr": 0.1, "betas": (0.0, 0.5)}
    kept, state = step(optim.Adam, [8.0, 1.0], amsgrad=True, **options)
    free, other = step(optim.Adam, [8.0, 1.0], **options)
    assert state["max_exp_avg_sq"].item() == 32.0 and "max_exp_avg_sq" not in other
    # the second step divides by the corrected root of 32, or of 0.5 * 32 + 0.5
    size = lambda v: 0.1 / (math.sqrt(v) / math.sqrt(1 - 0.25) + 1e-8)
    assert kept == pytest.approx(0.9 - size(32.0)) and free == pytest.approx(0.9 - size(16.5))


def test_decay_is_of_the_weight_or_of_the_gradient():
    decoupled, _ = step(optim.AdamW, [0.0], start=10.0, lr=0.1, weight_decay=0.5)
    assert decoupled == pytest.approx(10.0 * (1 - 0.1 * 0.5))
    coupled, _ = step(optim.Adam, [0.0], start=10.0, lr=0.1, weight_decay=0.5)
    assert coupled == pytest.approx(9.9)  # a gradient of 5, whose step has the size of the rate
    for kind in (optim.Adam, optim.NAdam, optim.RAdam):
        options = {"lr": 0.1, "weight_decay": 0.5, "decoupled_weight_decay": True}
        assert step(kind, [0.0], start=10.0, **options)[0] == pytest.approx(9.5)


def test_radam_goes_with_the_mean_until_the_variance_can_be_told():
    betas = (0.5, 0.999)
    p, _ = step(optim.RAdam, [3.0], lr=0.1, betas=betas)
    assert p == pytest.approx(1.0 - 0.1 * 3.0)  # not divided by its own size
    grads = [3.0] * 8
    small, _ = step(optim.RAdam, grads, lr=0.1, betas=betas)
    assert 1.0 - small == pytest.approx(5 * 0.3 + _rectified(0.999, (6, 7, 8)) * 0.1, rel=1e-6)


def _rectified(beta2, steps):
    """Liu et al. 2020, algorithm 2, of a gradient that does not change."""
    longest = 2 / (1 - beta2) - 1
    lengths = [longest - 2 * t * beta2**t / (1 - beta2**t) for t in steps]
    return sum(
        math.sqrt((r - 4) * (r - 2) * longest / ((longest - 4) * (longest - 2) * r))
        for r in lengths
    )


def test_nadam_keeps_the_product_of_its_momenta():
    _, state = step(optim.NAdam, [1.0, 1.0], betas=(0.9, 0.999), momentum_decay=1.0)
    mu = [0.9 * (1 - 0.5 * 0.96**t) for t in (1, 2)]
    assert state["mu_product"].item() == pytest.approx(mu[0] * mu[1], rel=1e-6)


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax])
def test_going_up_is_going_down_with_the_other_sign(kind):
    up, _ = step(kind, [1.0, -2.0], start=0.0, maximize=True)
    down, _ = step(kind, [1.0, -2.0], start=0.0)
    assert up == pytest.approx(-down) and up != 0.0


def test_what_is_refused():
    p = [dt.ones(1, requires_grad=True)]
    with pytest.raises(ConfigError, match="either both floats or both Tensors"):
        optim.Adam(p, betas=(dt.tensor(0.9), 0.999))
    with pytest.raises(ConfigError, match="AdamW: lr as a Tensor is not supported for capturable"):
        optim.AdamW(p, lr=dt.tensor(0.1), foreach=True)
    optim.AdamW(p, lr=dt.tensor(0.1), foreach=True, capturable=True)
    for kind in (optim.Adam, optim.NAdam, optim.RAdam, optim.Adamax):
        with pytest.raises(ConfigError, match="Invalid beta parameter at index 1: 1"):
            kind(p, betas=(0.9, 1.0))
        with pytest.raises(ConfigError, match="Invalid epsilon value"):
            kind(p, eps=-1.0)


def test_a_loaded_adamw_decays_weights_also_after_an_older_state():
    p = dt.full((1,), 10.0, requires_grad=True)
    opt = optim.AdamW([p], lr=0.1, weight_decay=0.5)
    state = opt.state_dict()
    del state["param_groups"][0]["decoupled_weight_decay"]
    opt.load_state_dict(state)
    p.grad = dt.zeros(1)
    opt.step()
    assert p.item() == pytest.approx(9.5)
