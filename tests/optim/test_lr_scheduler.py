"""Schedules against closed forms, and against PyTorch where installed."""

import math
import pickle

import numpy as np
import pytest

from disttrain import optim
from disttrain.core import wrap
from disttrain.errors import ConfigError
from disttrain.optim import lr_scheduler as ls

BASE = 0.4


def optimizer(kind=optim.SGD, **args):
    params = [wrap(np.zeros(2, np.float32)).requires_grad_() for _ in range(2)]
    groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": 2 * BASE}]
    return kind(groups, **{"lr": BASE, **args})


def walk(opt, schedule, steps, metric=None):
    """The first group's rate before each step; the second group must go along."""
    rates = []
    for t in range(steps):
        a, b = (g["lr"] for g in opt.param_groups)
        rates.append(a)
        assert schedule.get_last_lr() == [a, b]
        opt.step()
        schedule.step() if metric is None else schedule.step(metric(t))
    return rates


CLOSED = {
    "step": (lambda o: ls.StepLR(o, 3, 0.5), lambda t: 0.5 ** (t // 3)),
    "multistep": (
        lambda o: ls.MultiStepLR(o, [2, 5, 5], 0.1),
        lambda t: 0.1 ** ((t >= 2) + 2 * (t >= 5)),
    ),
    "exponential": (lambda o: ls.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "constant": (lambda o: ls.ConstantLR(o, 0.5, 4), lambda t: 0.5 if t < 4 else 1.0),
    "linear": (lambda o: ls.LinearLR(o, 0.2, 1.0, 8), lambda t: 0.2 + 0.8 * min(t, 8) / 8),
    "polynomial": (lambda o: ls.PolynomialLR(o, 6, 2.0), lambda t: (1 - min(t, 6) / 6) ** 2),
    "lambda": (lambda o: ls.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 1 / (1 + t)),
    "multiplicative": (lambda o: ls.MultiplicativeLR(o, lambda t: 0.7), lambda t: 0.7**t),
    "cosine": (lambda o: ls.CosineAnnealingLR(o, 5), lambda t: (1 + math.cos(math.pi * t / 5)) / 2),
    "restarts": (
        lambda o: ls.CosineAnnealingWarmRestarts(o, 4),
        lambda t: (1 + math.cos(math.pi * (t % 4) / 4)) / 2,
    ),
    "warmup": (
        lambda o: ls.warmup_cosine(o, 4, 12, 0.1),
        lambda t: (
            (t + 1) / 4 if t < 4 else 0.1 + 0.45 * (1 + math.cos(math.pi * min((t - 4) / 8, 1)))
        ),
    ),
    "sequential": (
        lambda o: ls.SequentialLR(o, [ls.ConstantLR(o, 0.1, 100), ls.ExponentialLR(o, 0.9)], [5]),
        lambda t: 0.1 if t < 5 else 0.9 ** (t - 5),
    ),
    "chained": (
        lambda o: ls.ChainedScheduler([ls.ConstantLR(o, 0.1, 3), ls.ExponentialLR(o, 0.9)]),
        lambda t: (0.1 if t < 3 else 1.0) * 0.9**t,
    ),
}
closed = pytest.mark.parametrize("name", CLOSED)


@closed
def test_rates_follow_the_closed_form(name):
    make, form = CLOSED[name]
    opt = optimizer()
    schedule = make(opt)
    got = walk(opt, schedule, 20)
    np.testing.assert_allclose(got, [BASE * form(t) for t in range(20)], rtol=1e-12, atol=1e-15)
    assert math.isclose(opt.param_groups[1]["lr"], 2 * opt.param_groups[0]["lr"], abs_tol=1e-15)


@closed
def test_a_schedule_goes_on_from_its_state(name):
    make, form = CLOSED[name]
    a, b = optimizer(), optimizer()
    first, second = make(a), make(b)
    walk(a, first, 7)
    b.load_state_dict(pickle.loads(pickle.dumps(a.state_dict())))
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    np.testing.assert_allclose(
        walk(b, second, 5), [BASE * form(t) for t in range(7, 12)], rtol=1e-12, atol=1e-15
    )


PAIRS = {
    "step": ("StepLR", {"step_size": 3}),
    "multistep": ("MultiStepLR", {"milestones": [2, 5]}),
    "exponential": ("ExponentialLR", {"gamma": 0.8}),
    "constant": ("ConstantLR", {}),
    "linear": ("LinearLR", {"end_factor": 0.5, "total_iters": 7}),
    "polynomial": ("PolynomialLR", {"power": 1.5}),
    "cosine": ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.02}),
    "one cycle": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 25}),
    "one cycle 3": (
        "OneCycleLR",
        {"max_lr": [1.0, 2.0], "epochs": 5, "steps_per_epoch": 5, "three_phase": True},
    ),
    "one cycle linear": (
        "OneCycleLR",
        {"max_lr": 1.0, "total_steps": 25, "anneal_strategy": "linear", "cycle_momentum": False},
    ),
    "cyclic": ("CyclicLR", {"base_lr": 0.1, "max_lr": [1.0, 2.0], "step_size_up": 3}),
    "cyclic 2": (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 2,
            "step_size_down": 5,
            "mode": "triangular2",
            "base_momentum": 0.7,
            "max_momentum": 0.95,
        },
    ),
    "cyclic range": (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 4,
            "mode": "exp_range",
            "gamma": 0.9,
            "cycle_momentum": False,
        },
    ),
    "cyclic own": (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 4,
            "scale_fn": lambda x: 0.5**x,
            "scale_mode": "iterations",
        },
    ),
    "swa": ("SWALR", {"swa_lr": [0.05, 0.1], "anneal_epochs": 4}),
    "swa linear": ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 7, "anneal_strategy": "linear"}),
    "swa at once": ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 0}),
    "plateau": ("ReduceLROnPlateau", {"patience": 2, "cooldown": 1}),
    "plateau max": (
        "ReduceLROnPlateau",
        {"mode": "max", "patience": 1, "threshold_mode": "abs", "threshold": 0.1, "min_lr": 0.01},
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_rates_are_those_of_pytorch(name, kind):
    import torch
    import torch.optim.swa_utils

    cls, args = PAIRS[name]
    extra = {"momentum": 0.9} if kind == "SGD" else {}
    mine = optimizer(getattr(optim, kind), **extra)
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": 2 * BASE}]
    theirs = getattr(torch.optim, kind)(groups, lr=BASE, **extra)
    place = torch.optim.swa_utils if cls == "SWALR" else torch.optim.lr_scheduler
    a, b = getattr(ls, cls)(mine, **args), getattr(place, cls)(theirs, **args)
    metric = [5, 4, 4, 4, 4, 3.9, 5, 5, 5, 5, 5, 1, 2, 2, 2, 2, 2, 2, 2, 2]
    for t in range(20):
        for g, h in zip(mine.param_groups, theirs.param_groups):
            for key in {"lr", "momentum", "betas"} & set(g):
                np.testing.assert_allclose(g[key], h[key], rtol=1e-10, atol=1e-15)
        assert a.last_epoch == b.last_epoch
        mine.step()
        theirs.step()
        for s in (a, b):
            s.step(metric[t]) if "plateau" in name else s.step()


def test_plateau_waits_for_its_patience():
    opt = optimizer()
    schedule = ls.ReduceLROnPlateau(opt, patience=1, factor=0.5)
    metric = [3, 2, 2, 2, 2, 2, 1, 1]
    rates = walk(opt, schedule, 8, lambda t: metric[t])
    np.testing.assert_allclose(rates, [BASE * f for f in (1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25)])


def test_resuming_by_last_epoch():
    opt = optimizer()
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified in param_groups"):
        ls.StepLR(opt, 2, last_epoch=3)
    for group in opt.param_groups:
        group["initial_lr"] = group["lr"]
        group["lr"] *= (1 + math.cos(math.pi * 0.5)) / 2  # what the optimizer's state says
    schedule = ls.CosineAnnealingLR(opt, 10, last_epoch=4)
    assert math.isclose(opt.param_groups[0]["lr"], BASE / 2)
    opt.step()
    schedule.step()
    assert math.isclose(opt.param_groups[0]["lr"], BASE * (1 + math.cos(math.pi * 0.6)) / 2)


OF_STATE = ("OneCycleLR", "ReduceLROnPlateau")  # what these go on from is kept elsewhere


@pytest.mark.peer
@pytest.mark.parametrize("last", [-1, 2, 4])
@pytest.mark.parametrize("name", [n for n in PAIRS if PAIRS[n][0] not in OF_STATE])
def test_resumed_rates_are_those_of_pytorch(name, last):
    import torch
    import torch.optim.swa_utils

    cls, args = PAIRS[name]
    place = torch.optim.swa_utils if cls == "SWALR" else torch.optim.lr_scheduler
    results = []
    for T, schedules in ((torch, place), (None, ls)):
        kind = torch.optim.SGD if T else optim.SGD
        zeros = torch.zeros if T else lambda n: wrap(np.zeros(n, np.float32))
        groups = [{"params": [zeros(2).requires_grad_()], "initial_lr": 1.0} for _ in range(2)]
        opt = kind(groups, lr=0.7, momentum=0.5)
        schedule, rates = getattr(schedules, cls)(opt, **args, last_epoch=last), []
        for _ in range(6):
            rates += [g["lr"] for g in opt.param_groups]
            opt.step()
            schedule.step()
        results.append(rates)
    np.testing.assert_allclose(*results, rtol=1e-12)


def test_mistakes_are_named():
    opt = optimizer()
    with pytest.raises(TypeError, match="is not an Optimizer"):
        ls.StepLR([], 3)
    with pytest.raises(ConfigError, match="3 functions for 2 parameter groups"):
        ls.LambdaLR(opt, [abs, abs, abs])
    with pytest.raises(ConfigError, match=r"factor=1\.5"):
        ls.ReduceLROnPlateau(opt, factor=1.5)
    with pytest.raises(ConfigError, match="mode is invalid and scale_fn is None"):
        ls.CyclicLR(opt, 0.1, 1.0, mode="square")
    with pytest.raises(ConfigError, match="must have the same length"):
        ls.SWALR(opt, [0.1] * 3)
    with pytest.raises(ConfigError, match="does not support `ReduceLROnPlateau`"):
        ls.ChainedScheduler([ls.ReduceLROnPlateau(opt)])
    with pytest.raises(ConfigError, match="must support momentum or beta1"):
        ls.OneCycleLR(optimizer(optim.Adagrad), 1.0, 10)
    with pytest.raises(
        ConfigError, match="number of schedulers 2 and the number of milestones to be equal to 0"
    ):
        ls.SequentialLR(opt, [ls.StepLR(opt, 1), ls.StepLR(opt, 1)], [])
    with pytest.raises(ConfigError, match="warmup=12"):
        ls.warmup_cosine(opt, 12, 12)
