"""An optimizer lent to other parameters: what it does there, and that it comes back."""

from __future__ import annotations

import copy

import pytest

import disttrain as dt
from disttrain import optim
from disttrain.errors import StateDictError
from disttrain.optim.swap import swap_in_optimizer_params_and_state as swapped


def stepped(value: float):
    p = dt.nn.Parameter(dt.tensor([value]))
    optimizer = optim.SGD([p], lr=0.5, momentum=0.9)
    p.grad = dt.tensor([1.0])
    optimizer.step()
    return p, optimizer


def test_a_step_changes_what_was_given_alone():
    p, optimizer = stepped(1.0)
    other = dt.tensor([10.0])
    other.grad = dt.tensor([2.0])
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 1.0
    with swapped(optimizer, {"w": other}, state):
        optimizer.step()
    assert other.item() == pytest.approx(10 - (0.9 * 1 + 2))
    assert p.item() == pytest.approx(0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["params"][0] is p
    assert optimizer.state[p]["momentum_buffer"].item() == 1.0


def test_it_comes_back_after_an_error_too():
    p, optimizer = stepped(1.0)
    with pytest.raises(KeyError), swapped(optimizer, {"w": p}, optimizer.state_dict()):
        raise KeyError
    assert optimizer.param_groups[0]["params"][0] is p and p in optimizer.state


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.pop("state"), "to be what optimizer.state_dict"),
        (lambda s: s.update(param_groups=[]), "different number of parameter groups"),
        (lambda s: s["param_groups"][0].pop("lr"), "lr"),
        (lambda s: s["param_groups"][0].update(params=[0, 1]), "got 2 parameters in group 0"),
        (lambda s: s["state"].update({7: {}}), "extra keys"),
    ],
)
def test_states_that_do_not_fit(change, told):
    p, optimizer = stepped(1.0)
    state = copy.deepcopy(optimizer.state_dict())
    change(state)
    with pytest.raises(StateDictError, match=told), swapped(optimizer, {"w": p}, state):
        pass


def test_too_few_parameters_and_no_step_yet():
    _, optimizer = stepped(1.0)
    with pytest.raises(StateDictError, match="1 parameters are needed, 0 were given"):
        with swapped(optimizer, {}, optimizer.state_dict()):
            pass
    fresh = optim.SGD([dt.nn.Parameter(dt.ones(1))], lr=0.1)
    with pytest.raises(StateDictError, match="make a step first"):
        with swapped(fresh, {}, fresh.state_dict()):
            pass
