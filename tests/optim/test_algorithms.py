"""Optimizers against their formulas in numpy, and against PyTorch where installed."""

import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import optim
from disttrain.core import wrap
from disttrain.errors import ConfigError
from support.cases.optimizers import CASES

SHAPES = [(4, 3), (5,), (), (2, 1, 6)]

named = pytest.mark.parametrize("name, args", CASES, ids=lambda v: v if isinstance(v, str) else "")


def parameters(dtype="f8", seed=0):
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]
    return [wrap(a).requires_grad_() for a in arrays]


def gradients(step, dtype="f8"):
    rng = np.random.default_rng(100 + step)
    return [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]


def train(opt, params, steps, dtype="f8", start=0):
    for k in range(start, start + steps):
        for p, g in zip(params, gradients(k, dtype)):
            p.grad = wrap(g)
        opt.step()


RATES = {"Adadelta": 1.0, "Adamax": 2e-3, "NAdam": 2e-3, "ASGD": 1e-2, "Rprop": 1e-2}


def moments(a, p, g, s):
    b1, b2 = a.get("betas", (0.9, 0.999))
    zero = np.zeros_like(p)
    s["m"] = b1 * s.get("m", zero) + (1 - b1) * g
    s["v"] = b2 * s.get("v", zero) + (1 - b2) * g * g
    return b1, b2, s["m"], s["v"]


def adamax(a, lr, p, g, s, t):
    b1, b2, m, _ = moments(a, p, g, s)
    s["u"] = np.maximum(b2 * s.get("u", np.zeros_like(p)), np.abs(g) + 1e-8)
    return p - lr / (1 - b1**t) * m / s["u"]


def nadam(a, lr, p, g, s, t):
    b1, b2, m, v = moments(a, p, g, s)
    psi = a.get("momentum_decay", 4e-3)
    mu = [b1 * (1 - 0.5 * 0.96 ** (k * psi)) for k in (t, t + 1)]
    s["product"] = np.float32(s.get("product", np.float32(1)) * mu[0])
    product = float(s["product"])
    mean = mu[1] * m / (1 - product * mu[1]) + (1 - mu[0]) * g / (1 - product)
    return p - lr * mean / (np.sqrt(v / (1 - b2**t)) + 1e-8)


def radam(a, lr, p, g, s, t):
    b1, b2, m, v = moments(a, p, g, s)
    m = m / (1 - b1**t)
    top = 2 / (1 - b2) - 1
    rho = top - 2 * t * b2**t / (1 - b2**t)
    if rho <= 5:
        return p - lr * m
    rise = (rho - 4) * (rho - 2) * top / ((top - 4) * (top - 2) * rho)
    spread = (np.sqrt(v) + a.get("eps", 1e-8)) / np.sqrt(1 - b2**t)
    return p - lr * m * np.sqrt(rise) / spread


def asgd(a, lr, p, g, s, t):
    lambd = a.get("lambd", 1e-4)
    eta = float(np.float32(s.get("eta", lr)))
    p = p * (1 - lambd * eta) - eta * g
    s["eta"] = lr / (1 + lambd * lr * t) ** a.get("alpha", 0.75)
    return p


def rprop(a, lr, p, g, s, t):
    (low, high), (least, most) = a.get("etas", (0.5, 1.2)), a.get("step_sizes", (1e-6, 50))
    turn = g * s.get("g", np.zeros_like(p))
    factor = np.where(turn > 0, high, np.where(turn < 0, low, 1.0))
    s["size"] = np.clip(s.get("size", np.full_like(p, lr)) * factor, least, most)
    s["g"] = np.where(turn < 0, 0.0, g)
    return p - np.sign(s["g"]) * s["size"]


LATER = {"Adamax": adamax, "NAdam": nadam, "RAdam": radam, "ASGD": asgd, "Rprop": rprop}


def formula(name, a, p, g, s, t):
    """One step by the book on float64 arrays; ``s`` is a dict of state. Returns the new p."""
    g = -g if a.get("maximize") else g
    lr, wd = a.get("lr", RATES.get(name, 1e-3)), a.get("weight_decay", 0)
    if name == "AdamW" or a.get("decoupled_weight_decay"):
        wd = a.get("weight_decay", 0.01)
        p = p * (1 - lr * wd)
    else:
        g = g + wd * p
    if name == "SGD":
        mom = a.get("momentum", 0)
        if not mom:
            return p - lr * g
        s["b"] = g if t == 1 else mom * s["b"] + (1 - a.get("dampening", 0)) * g
        return p - lr * (g + mom * s["b"] if a.get("nesterov") else s["b"])
    zero = np.zeros_like(p)
    if name in ("Adam", "AdamW"):
        b1, b2 = a.get("betas", (0.9, 0.999))
        s["m"] = b1 * s.get("m", zero) + (1 - b1) * g
        s["v"] = b2 * s.get("v", zero) + (1 - b2) * g * g
        s["top"] = np.maximum(s.get("top", zero), s["v"]) if a.get("amsgrad") else s["v"]
        spread = np.sqrt(s["top"] / (1 - b2**t)) + a.get("eps", 1e-8)
        return p - lr * s["m"] / (1 - b1**t) / spread
    if name in LATER:
        return LATER[name](a, lr, p, g, s, t)
    if name == "Adagrad":
        s["v"] = s.get("v", zero + a.get("initial_accumulator_value", 0)) + g * g
        return p - lr / (1 + (t - 1) * a.get("lr_decay", 0)) * g / (np.sqrt(s["v"]) + 1e-10)
    if name == "Adadelta":
        rho, eps = a.get("rho", 0.9), a.get("eps", 1e-6)
        s["v"] = rho * s.get("v", zero) + (1 - rho) * g * g
        d = np.sqrt(s.get("d", zero) + eps) / np.sqrt(s["v"] + eps) * g
        s["d"] = rho * s.get("d", zero) + (1 - rho) * d * d
        return p - lr * d
    alpha = a.get("alpha", 0.99)
    s["v"] = alpha * s.get("v", zero) + (1 - alpha) * g * g
    s["m"] = alpha * s.get("m", zero) + (1 - alpha) * g if a.get("centered") else zero
    step = g / (np.sqrt(s["v"] - s["m"] ** 2) + 1e-8)
    s["b"] = a.get("momentum", 0) * s.get("b", zero) + step
    return p - lr * s["b"]


@named
def test_steps_follow_the_formula(name, args):
    params = parameters()
    want, state = [p.array.copy() for p in params], [{} for _ in params]
    train(getattr(optim, name)(params, **args), params, 9)
    for t in range(1, 10):
        for k, g in enumerate(gradients(t - 1)):
            want[k] = formula(name, args, want[k], g, state[k], t)
    for p, w in zip(params, want):
        np.testing.assert_allclose(p.array, w, rtol=1e-9, atol=1e-12)


@named
@pytest.mark.peer
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_steps_and_state_are_those_of_pytorch(name, args, dtype):
    import torch

    params, steps = parameters(dtype), 9
    theirs = [torch.nn.Parameter(torch.from_numpy(p.array.copy())) for p in params]
    opt, other = getattr(optim, name)(params, **args), getattr(torch.optim, name)(theirs, **args)
    train(opt, params, steps, dtype)
    for k in range(steps):
        for p, g in zip(theirs, gradients(k, dtype)):
            p.grad = torch.from_numpy(g)
        other.step()
    tolerance = {"rtol": 2e-5, "atol": 1e-6} if dtype == "f4" else {"rtol": 1e-10, "atol": 1e-13}
    for p, q in zip(params, theirs):
        np.testing.assert_allclose(p.array, q.detach().numpy(), **tolerance)
    mine, saved = opt.state_dict(), other.state_dict()
    assert set(mine["param_groups"][0]) >= set(args) | {"params"}
    assert set(mine["param_groups"][0]) == set(saved["param_groups"][0])
    assert mine["state"].keys() == saved["state"].keys() or name == "SGD"
    for k, values in saved["state"].items():
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                np.testing.assert_allclose(mine["state"][k][key].array, value.numpy(), **tolerance)


@named
def test_state_goes_through_a_state_dict(name, args):
    # (Single numbers in float32 become float64 with float64 parameters, as in PyTorch, and then
    # go on more precisely than where they come from.)
    dtype = "f8" if getattr(optim, name).singles == ("step",) else "f4"
    a, b = parameters(dtype), parameters(dtype)
    first, second = getattr(optim, name)(a, **args), getattr(optim, name)(b, lr=123.0)
    train(first, a, 2, dtype)
    for p, q in zip(a, b):
        q.array[...] = p.array
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
    train(first, a, 2, dtype, start=2)
    train(second, b, 2, dtype, start=2)
    for p, q in zip(a, b):
        np.testing.assert_array_equal(p.array, q.array)


@pytest.mark.parametrize("name, single", [("NAdam", "mu_product"), ("ASGD", "eta"), ("ASGD", "mu")])
@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16"])
def test_a_loaded_number_takes_the_type_of_its_parameter_and_a_count_does_not(name, single, kind):
    p = dt.ones(3, dtype=getattr(dt, kind), requires_grad=True)
    first, second = getattr(optim, name)([p]), getattr(optim, name)([p])
    p.grad = dt.ones_like(p)
    first.step()
    assert first.state[p][single].dtype == dt.float32
    second.load_state_dict(first.state_dict())
    assert second.state[p][single].dtype == p.dtype and second.state[p]["step"].dtype == dt.float32
    second.step()
    assert second.state[p][single].dtype == p.dtype and second.state[p]["step"].item() == 2


def test_named_parameters():
    p, q = parameters()[:2]
    opt = optim.SGD([("weight", p), ("bias", q)], lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["weight", "bias"]


def test_non_contiguous_and_complex_parameters():
    base = np.arange(24.0).reshape(4, 6)
    p = wrap(base.T[::2]).requires_grad_()
    p.grad = wrap(np.ones((3, 4)))
    want = p.array - 0.1
    optim.SGD([p], lr=0.1).step()
    np.testing.assert_allclose(p.array, want)
    assert base[0, 1] == 1.0
    z = wrap(np.array([1 + 2j, 3 - 1j])).requires_grad_()
    z.grad = wrap(np.array([0.5j, 1.0 + 0j]))
    optim.SGD([z], lr=0.1, momentum=0.9).step()
    np.testing.assert_allclose(z.array, [1 + 1.95j, 2.9 - 1j])


def test_mistakes_are_named():
    p, q = parameters()[:2]
    with pytest.raises(TypeError, match="iterable of Tensors or dicts, but one Tensor"):
        optim.SGD(p, lr=0.1)
    with pytest.raises(ConfigError, match="empty parameter list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="only optimize Tensors, but one of the params is int"):
        optim.SGD([1], lr=0.1)
    with pytest.raises(TypeError, match="organized in ordered collections"):
        optim.SGD([{"params": {p}}], lr=0.1)
    with pytest.raises(ConfigError, match="can't optimize a non-leaf"):
        optim.SGD([p * 2], lr=0.1)
    with pytest.raises(ConfigError, match="more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.warns(UserWarning, match="a parameter group with duplicate parameters"):
        optim.SGD([p, p], lr=0.1)
    with pytest.raises(ConfigError, match="Invalid learning rate: -1"):
        optim.SGD([p], lr=-1)
    with pytest.raises(ConfigError, match="Invalid learning rate: nan"):
        optim.Adam([p], lr=float("nan"))
    with pytest.raises(ConfigError, match=r"Invalid beta parameter at index 1: 1\.0"):
        optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(ConfigError, match="Nesterov momentum requires"):
        optim.SGD([p], lr=0.1, nesterov=True)
    saved = optim.SGD([p], lr=0.1).state_dict()
    with pytest.raises(ConfigError, match="saved with 1 parameters, here it has 2"):
        optim.SGD([p, q], lr=0.1).load_state_dict(saved)
