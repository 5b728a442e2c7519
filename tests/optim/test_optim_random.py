"""Optimizers with drawn settings, types, shapes and layouts against PyTorch."""

import inspect
import random

import numpy as np
import pytest

from disttrain import optim
from disttrain.core import wrap

RATES = {"lr": [0.1, 0.01], "weight_decay": [0, 0.1], "maximize": [False, True]}
MOMENTS = {**RATES, "betas": [(0.9, 0.999), (0.5, 0.6), (0.0, 0.9)], "eps": [1e-8, 1e-3]}
DECOUPLED = {**MOMENTS, "decoupled_weight_decay": [False, True]}
SPACE = {
    "SGD": {**RATES, "momentum": [0, 0.9, 0.5], "dampening": [0, 0.3]},
    "Adam": {**DECOUPLED, "amsgrad": [False, True]},
    "AdamW": {**MOMENTS, "amsgrad": [False, True]},
    "NAdam": {**DECOUPLED, "momentum_decay": [4e-3, 0.1]},
    "RAdam": DECOUPLED,
    "Adamax": MOMENTS,
    "ASGD": {**RATES, "lambd": [1e-4, 0.1], "alpha": [0.75, 0.5], "t0": [1e6, 2, 0]},
    "Rprop": {
        "lr": [0.1, 0.01], "maximize": [False, True],
        "etas": [(0.5, 1.2), (0.1, 2.0)], "step_sizes": [(1e-6, 50), (0.01, 0.02)],
    },
    "RMSprop": {**RATES, "alpha": [0.99, 0.5], "momentum": [0, 0.9], "centered": [False, True]},
    "Adagrad": {**RATES, "lr_decay": [0, 0.1], "initial_accumulator_value": [0, 0.2]},
    "Adadelta": {**RATES, "rho": [0.9, 0.5]},
    "Adafactor": {**RATES, "beta2_decay": [-0.8, -0.3], "d": [1.0, 2.0]},
}  # fmt: skip
REAL = ("Adafactor",)
STEPS, CASES = 7, 25


def drawn(rng, values, shape, dtype):
    a = values.standard_normal(shape)
    a = a + 1j * values.standard_normal(shape) if dtype[0] == "c" else a
    return np.asarray(a if rng.random() > 0.1 else a * 0, dtype)


def case(name, number):
    """Settings, a start in some layout, and gradients, some of them missing."""
    rng = random.Random(f"{name} {number}")
    values = np.random.default_rng(rng.getrandbits(32))
    args = {key: rng.choice(choices) for key, choices in SPACE[name].items()}
    dtype = rng.choice(["f4", "f8"] if name in REAL else ["f4", "f8", "c8"])
    shape = rng.choice([(), (3,), (2, 3), (1,), (4, 2, 2)] + [(0, 2)] * (name not in REAL))
    start = drawn(rng, values, shape, dtype)
    if rng.random() < 0.4:
        start = np.array(start, order="F")
    missing = rng.randrange(STEPS)
    gradients = [None if k == missing else drawn(rng, values, shape, dtype) for k in range(STEPS)]
    return args, start, gradients


@pytest.mark.parametrize("name", SPACE)
def test_layouts_do_not_matter(name):
    """A step over memory of any order is the step over a contiguous copy."""
    for number in range(CASES):
        args, start, gradients = case(name, number)
        results = []
        for order in ("C", "K"):
            p = wrap(start.copy(order)).requires_grad_()
            opt = getattr(optim, name)([p], **args)
            for g in gradients:
                p.grad = None if g is None else wrap(g.copy())
                opt.step()
            results.append(p.array)
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-7)


@pytest.mark.peer
@pytest.mark.parametrize("name", SPACE)
def test_steps_and_state_are_those_of_pytorch(name):
    import torch

    for number in range(CASES):
        args, start, gradients = case(name, number)
        p = wrap(start.copy("K")).requires_grad_()
        q = torch.from_numpy(start.copy("K")).requires_grad_()
        mine, theirs = getattr(optim, name)([p], **args), getattr(torch.optim, name)([q], **args)
        for g in gradients:
            p.grad = None if g is None else wrap(g.copy())
            q.grad = None if g is None else torch.from_numpy(g.copy())
            mine.step()
            theirs.step()
        wide = start.dtype == np.float64
        tolerance = {"rtol": 1e-9, "atol": 1e-11} if wide else {"rtol": 3e-5, "atol": 3e-6}
        pairs = {"p": (p.array, q.detach().numpy())}
        for key, value in theirs.state[q].items():
            if isinstance(value, torch.Tensor):
                pairs[key] = (mine.state[p][key].array, value.numpy())
        for key, (a, b) in pairs.items():
            text = f"{name} {number} {key}: {args}"
            assert (a.shape, a.dtype) == (b.shape, b.dtype), text
            np.testing.assert_allclose(a, b, err_msg=text, **tolerance)


@pytest.mark.peer
def test_arguments_and_defaults_are_those_of_pytorch():
    import torch

    for place, other in ((optim, torch.optim), (optim.lr_scheduler, torch.optim.lr_scheduler)):
        for name in place.__all__:
            kind, their = getattr(place, name), getattr(other, name, None)
            if not isinstance(kind, type) or their is None or name == "Optimizer":
                continue
            a, b = (inspect.signature(k).parameters.values() for k in (kind, their))
            assert [(x.name, x.default) for x in a] == [(x.name, x.default) for x in b], name
    for name in optim.__all__:
        kind = getattr(optim, name)
        if isinstance(kind, type) and name != "Optimizer":
            mine = kind([wrap(np.zeros((2, 2)))]).defaults
            assert mine == getattr(torch.optim, name)([torch.zeros(2, 2)]).defaults, name
