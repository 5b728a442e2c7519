"""Several modules as one set of tensors, and batch norms without statistics; and what ``func`` has
of functions that are linear, or without writes."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import AutogradError
from disttrain.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    jvp,
    linearize,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vmap,
)


def test_an_ensemble_is_one_call():
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval() for _ in range(3)]
    params, buffers = stack_module_state(models)
    assert params["0.weight"].shape == (3, 4, 3) and params["0.weight"].is_leaf
    assert buffers["1.running_mean"].shape == (3, 4)
    x = dt.rand(5, 3)

    def run(p, b):
        return functional_call(models[0], (p, b), x)

    out = vmap(run)(params, buffers)
    for got, model in zip(out, models, strict=True):
        assert dt.allclose(got, model(x), atol=1e-6)
    out.sum().backward()
    assert params["0.weight"].grad.shape == (3, 4, 3) and models[0][0].weight.grad is None


@pytest.mark.parametrize(
    "models",
    [[], [nn.Linear(1, 1), nn.ReLU()], [nn.Linear(1, 1), nn.Linear(1, 1).eval()],
     [nn.Linear(1, 1), nn.Linear(1, 1).requires_grad_(False)]],
)  # fmt: skip
def test_what_is_no_ensemble(models):
    with pytest.raises(AutogradError, match="stack_module_state"):
        stack_module_state(models)


def test_batch_norms_lose_their_statistics_and_others_keep_them():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.InstanceNorm1d(2, track_running_stats=True))
    assert replace_all_batch_norm_modules_(net) is net
    assert net[0].running_mean is None and not net[0].track_running_stats
    assert net[1].running_mean is not None
    assert net[0].eval()(dt.rand(4, 2)).mean().abs() < 1e-6


def test_a_linear_function_of_tangents():
    x, t = dt.rand(3), dt.rand(3)
    out, push = linearize(lambda a: a.sin() * 2, x)
    assert dt.allclose(out, x.sin() * 2)
    for scale in (1.0, 2.0):
        assert dt.allclose(push(t * scale), jvp(lambda a: a.sin() * 2, (x,), (t * scale,))[1])
    for wrong in ((t, t), (t[:2],), (t.double(),)):
        with pytest.raises(AutogradError, match="linearize"):
            push(*wrong)


def test_what_a_value_inside_holds_and_functions_without_writes():
    seen = []

    def look(x):
        seen.append(debug_unwrap(x))
        y = x.clone()
        y.add_(1)
        return y

    x = dt.rand(2, 3)
    assert dt.equal(vmap(functionalize(look))(x), x + 1)
    assert seen[0].shape == (2, 3) and type(seen[0]) is dt.Tensor
    with pytest.raises(AutogradError, match="remove=views"):
        functionalize(look, remove="views")
