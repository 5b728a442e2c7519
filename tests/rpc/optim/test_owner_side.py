"""An owner's optimizer, fed from distributed autograd: what a step changes, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import optim
from disttrain.rpc.optim import owner_side
from disttrain.rpc.optim.owner_side import LocalOptimizer

pytestmark = pytest.mark.simulated


class Here:
    """A reference to a value of this worker."""

    def __init__(self, value):
        self.value = value

    def local_value(self):
        return self.value


@pytest.fixture
def params():
    return [dt.tensor([1.0, 2.0], requires_grad=True), dt.tensor([3.0], requires_grad=True)]


@pytest.fixture
def gradients(monkeypatch):
    """Those of each context."""
    found = {}
    monkeypatch.setattr(owner_side, "get_gradients", lambda context: found[context])
    return found


def sgd(params, lr=0.5, **more):
    groups = [{"params": [Here(p) for p in params], **more}]
    return LocalOptimizer(optim.SGD, groups, (), {"lr": lr})


def test_a_step_uses_a_context_s_gradients_and_leaves_the_parameters_own(params, gradients):
    local = sgd(params)
    params[0].grad = own = dt.tensor([100.0, 100.0])
    gradients[7] = {params[0]: dt.tensor([2.0, 4.0])}
    local.step(7, {})
    assert params[0].tolist() == [0, 0] and params[1].tolist() == [3]
    assert params[0].grad is own and params[1].grad is None


def test_hyperparameters_change_before_the_step(params, gradients):
    local = sgd(params)
    gradients[1] = {p: dt.ones_like(p) for p in params}
    local.step(1, {0: {"lr": 0.25}})
    assert params[0].tolist() == [0.75, 1.75] and local.optim.param_groups[0]["lr"] == 0.25


def test_a_step_that_fails_leaves_the_own_gradients_too(params, gradients):
    class Broken(optim.SGD):
        def step(self):
            raise ValueError("no")

    local = LocalOptimizer(Broken, [{"params": [Here(p) for p in params]}], (), {"lr": 1.0})
    params[0].grad = own = dt.ones(2)
    gradients[1] = {params[0]: dt.zeros(2)}
    with pytest.raises(ValueError):
        local.step(1, {})
    assert params[0].grad is own
    gradients[1] = {}
    with pytest.raises(ValueError):
        local.step(1, {})  # the turn was given back


def test_groups_keep_their_settings_and_names(params):
    local = LocalOptimizer(
        optim.SGD,
        [
            {"params": [Here(params[0])], "lr": 0.1, "param_names": ["w"]},
            {"params": [Here(params[1])], "momentum": 0.5, "param_names": ["b"]},
        ],
        (),
        {"lr": 0.9},
    )
    assert [(s["lr"], s["momentum"]) for s in local.settings()] == [(0.1, 0), (0.9, 0.5)]
    assert local.optim.param_groups[0]["param_names"] == ["w"]
    assert all("params" not in s and "param_names" not in s for s in local.settings())
    later = dt.zeros(1, requires_grad=True)
    local.add([{"params": [Here(later)], "lr": 0.3, "param_names": ["c"]}])
    assert local.settings()[2]["lr"] == 0.3
    assert [p is q for p, q in zip(local._params, [*params, later])] == [True] * 3


def test_gradients_are_told_by_parameter(params, gradients):
    local = sgd(params)
    gradients[3] = {params[1]: dt.tensor([4.0])}
    none, some = local.gradients(3)
    assert none is None and some.tolist() == [4]


@pytest.mark.parametrize("p, want", [(2.0, 5.0), (1.0, 7.0), (float("inf"), 4.0)])
def test_norms_are_those_of_each_gradient(params, gradients, p, want):
    gradients[1] = {params[0]: dt.tensor([3.0, -4.0])}
    first, second = sgd(params).norms(1, p)
    assert first == (pytest.approx(want), "float32") and second is None


def test_a_gradient_is_scaled_once_however_many_parameters_have_it(params, gradients):
    shared = dt.tensor([3.0])
    gradients[1] = {params[0]: shared, params[1]: shared}
    sgd(params).scale(1, 0.5)
    assert shared.tolist() == [1.5] and not shared.requires_grad


def test_own_gradients_are_dropped_or_filled(params):
    local = sgd(params)
    params[0].grad = dt.ones(2)
    local.zero_grad(False)
    assert params[0].grad.tolist() == [0, 0]
    local.zero_grad(True)
    assert params[0].grad is None


def test_what_other_workers_call_by_name(params, gradients, monkeypatch):
    monkeypatch.setattr(owner_side, "RRef", Here)
    groups = [{"params": [Here(p) for p in params]}]
    ref, settings, defaults = owner_side.new_local_optimizer(
        optim.Adam, groups, (), {"lr": 0.1, "betas": (0.5, 0.9)}
    )
    assert settings[0]["lr"] == defaults["lr"] == 0.1 and settings[0]["betas"] == (0.5, 0.9)
    gradients[1] = {params[0]: dt.ones(2)}
    owner_side.local_optimizer_step(ref, 1, {0: {"lr": 0.2}})
    np.testing.assert_allclose(params[0].tolist(), [0.8, 1.8], rtol=1e-5)  # Adam's first step is lr
    state = owner_side.local_state(ref)
    assert state["param_groups"][0]["lr"] == 0.2 and len(state["state"]) == 1
    owner_side.local_optimizer_call(ref, "set", {0: {"lr": 9.0}})
    owner_side.load_local_state(ref, state)
    assert ref.value.settings()[0]["lr"] == 0.2
    added = [{"params": [Here(dt.zeros(1, requires_grad=True))], "lr": 0.7}]
    assert [s["lr"] for s in owner_side.local_optimizer_add(ref, added)] == [0.7]
