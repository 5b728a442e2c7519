"""Adafactor and Muon."""

import numpy as np
import pytest

from disttrain import optim
from disttrain.core import wrap
from disttrain.optim.matrix import orthogonalized

ADAFACTOR = [
    {},
    {"lr": 0.1, "weight_decay": 0.1, "maximize": True},
    {"eps": (1e-6, 1e-2), "d": 1.5, "beta2_decay": -0.5},
]
SHAPES = [(4, 3), (5,), (), (2, 3, 4), (1, 6)]


def parameters(shapes, dtype="f4"):
    rng = np.random.default_rng(0)
    return [wrap(np.asarray(rng.standard_normal(s), dtype)).requires_grad_() for s in shapes]


def gradients(k, shapes, dtype="f4"):
    rng = np.random.default_rng(10 + k)
    return [np.asarray(rng.standard_normal(s), dtype) for s in shapes]


def train(opt, params, grads, give=wrap):
    for gs in grads:
        for p, g in zip(params, gs):
            p.grad = give(g.copy())
        opt.step()


def test_adafactor_keeps_rows_and_columns_of_matrices():
    params = parameters(SHAPES)
    opt = optim.Adafactor(params, lr=0.1)
    train(opt, params, [gradients(0, SHAPES)])
    a, b, _, d, _ = (opt.state[p] for p in params)
    assert a["row_var"].shape == (4, 1) and a["col_var"].shape == (1, 3)
    assert d["row_var"].shape == (2, 3, 1) and set(b) == {"step", "variance"}
    g = gradients(0, SHAPES)[0]
    np.testing.assert_allclose(a["row_var"].array, (g * g).mean(-1, keepdims=True), rtol=1e-6)


def test_adafactor_first_step_by_the_formula():
    (p,) = parameters([(5,)], "f8")
    (g,) = gradients(0, [(5,)], "f8")
    size = max(1e-3, np.sqrt((p.array**2).mean())) * min(0.1, 1.0)
    update = g / np.abs(g)  # after one step the second moment is the square itself
    want = p.array - size / max(1.0, np.sqrt((update**2).mean())) * update
    train(optim.Adafactor([p], lr=0.1), [p], [[g]])
    np.testing.assert_allclose(p.array, want, rtol=1e-12)


def test_half_precision_steps_are_computed_wide():
    params = parameters([(64, 64)], "f2")
    opt = optim.Adafactor(params, lr=1.0)
    train(opt, params, [[np.full((64, 64), 100.0, "f2")]])
    assert np.isfinite(params[0].array).all()
    assert opt.state[params[0]]["row_var"].dtype == params[0].dtype


@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3)])
def test_the_iteration_brings_singular_values_near_one(shape):
    g = np.random.default_rng(0).standard_normal(shape).astype("f4")
    out = orthogonalized(g, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    values = np.linalg.svd(out, compute_uv=False)
    assert out.shape == shape and 0.3 < values.min() and values.max() < 1.4
    u, _, v = np.linalg.svd(g, full_matrices=False)
    assert np.sum(out * (u @ v)) / np.linalg.norm(out) / np.linalg.norm(u @ v) > 0.9


def test_muon_goes_down():
    (p,) = parameters([(6, 4)])
    opt = optim.Muon([p], lr=0.02, weight_decay=0.0)
    start = (p.array**2).sum()
    for _ in range(40):
        p.grad = wrap(2 * p.array)
        opt.step()
    assert (p.array**2).sum() < 0.5 * start


@pytest.mark.peer
@pytest.mark.parametrize("args", ADAFACTOR, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_adafactor_is_that_of_pytorch(args, dtype):
    import torch

    params = parameters(SHAPES, dtype)
    theirs = [torch.nn.Parameter(torch.from_numpy(p.array.copy())) for p in params]
    grads = [gradients(k, SHAPES, dtype) for k in range(5)]
    opt, other = optim.Adafactor(params, **args), torch.optim.Adafactor(theirs, **args)
    train(opt, params, grads)
    train(other, theirs, grads, torch.from_numpy)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == "f4" else {"rtol": 1e-10, "atol": 1e-12}
    for p, q in zip(params, theirs):
        np.testing.assert_allclose(p.array, q.detach().numpy(), **tolerance)
        mine, saved = opt.state[p], other.state[q]
        assert mine.keys() == saved.keys()
        for key in mine:
            np.testing.assert_allclose(mine[key].array, saved[key].numpy(), **tolerance)


@pytest.mark.peer
@pytest.mark.parametrize(
    "args",
    [{}, {"nesterov": False, "momentum": 0.5}, {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}],
    ids=str,
)
@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3)])
def test_muon_is_that_of_pytorch_to_the_precision_it_computes_in(args, shape):
    import torch

    (p,) = parameters([shape])
    q = torch.nn.Parameter(torch.from_numpy(p.array.copy()))
    grads = [gradients(k, [shape]) for k in range(4)]
    train(optim.Muon([p], lr=0.01, **args), [p], grads)
    other = torch.optim.Muon([q], lr=0.01, **args)
    train(other, [q], grads, torch.from_numpy)
    np.testing.assert_allclose(p.array, q.detach().numpy(), atol=0.01 * 4 * 2**-5)
