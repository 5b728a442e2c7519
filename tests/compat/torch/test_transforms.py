"""``functorch``: transforms that warn, modules as functions of parameters by position."""

from __future__ import annotations

import warnings

import pytest

import disttrain as dt
from disttrain.compat.torch import transforms
from disttrain.func import grad, vmap

MODULES = transforms.modules()
OLD = MODULES["functorch"]


def test_its_transforms_say_where_they_are_now():
    with pytest.warns(FutureWarning, match=r"Please use `torch\.func\.grad`"):
        found = OLD.grad(lambda x: (x**2).sum())(dt.ones(2))
    assert found.tolist() == [2.0, 2.0] and "cond" not in dir(OLD)
    with pytest.warns(FutureWarning, match=r"Please use `torch\.vmap`"):
        assert OLD.vmap(dt.sum)(dt.ones(2, 3)).tolist() == [3.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MODULES["torch.func"].vmap is vmap


def test_control_flow_is_in_a_module_of_its_own():
    flow = MODULES["functorch.experimental.control_flow"]
    assert flow.cond(dt.tensor(True), lambda x: x + 1, lambda x: x, (dt.ones(1),)).tolist() == [2]


def test_a_module_is_a_function_of_its_parameters():
    model = dt.nn.Linear(2, 3)
    f, params = transforms.make_functional(model)
    x = dt.ones(4, 2)
    assert f(params, x).tolist() == model(x).tolist() and f.param_names == ["weight", "bias"]
    assert params[0] is not model.weight and params[0].requires_grad
    assert f([dt.zeros(3, 2), dt.ones(3)], x).tolist() == [[1.0] * 3] * 4
    gradients = grad(lambda p: f(p, x).sum())(params)
    assert [tuple(g.shape) for g in gradients] == [(3, 2), (3,)]
    _, silent = transforms.make_functional(model, disable_autograd_tracking=True)
    assert not any(p.requires_grad for p in silent) and model.weight.requires_grad


def test_tied_parameters_are_one_and_buffers_go_apart():
    model = dt.nn.Sequential(dt.nn.Linear(2, 2), dt.nn.BatchNorm1d(2), dt.nn.Linear(2, 2)).eval()
    model[2].weight = model[0].weight
    with pytest.raises(RuntimeError, match="has buffers"):
        transforms.make_functional(model)
    f, params, buffers = transforms.make_functional_with_buffers(model)
    assert len(params) == 5 and len(buffers) == 3
    x = dt.randn(3, 2)
    assert f(params, buffers, x).tolist() == model(x).tolist()


def test_several_models_are_one():
    models = [dt.nn.Linear(2, 1) for _ in range(3)]
    f, params, buffers = transforms.combine_state_for_ensemble(models)
    x = dt.randn(4, 2)
    found = vmap(f, in_dims=(0, 0, None))(params, buffers, x)
    assert dt.allclose(found, dt.stack([m(x) for m in models]))
    with pytest.raises(RuntimeError, match="at least one model"):
        transforms.combine_state_for_ensemble([])


@pytest.mark.parametrize("chunks", [1, 2, 5, 9])
def test_chunks_by_number(chunks):
    x = dt.arange(10.0).reshape(5, 2)
    found = transforms.chunk_vmap(lambda a: a.cumsum(0), chunks=chunks)(x)
    assert found.tolist() == x.cumsum(1).tolist()
    with pytest.raises(ValueError, match="at least one"):
        transforms.chunk_vmap(dt.sin, chunks=0)


def test_warnings_of_fallbacks_can_be_turned_off():
    shown, show = transforms.inner_names().values()
    assert shown()
    show(False)
    try:
        assert not shown()
    finally:
        show(True)
