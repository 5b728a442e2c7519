"""Schedules that go round: one cycle, and scale functions in the state."""

import math

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


def test_one_cycle_rises_to_the_top_and_ends_at_the_bottom():
    opt = optimizer(momentum=0.9)
    schedule = ls.OneCycleLR(opt, max_lr=1.0, total_steps=20, pct_start=0.25)
    rates, momenta = [], []
    for _ in range(20):
        rates.append(opt.param_groups[0]["lr"])
        momenta.append(opt.param_groups[0]["momentum"])
        opt.step()
        schedule.step()
    assert math.isclose(rates[0], 1 / 25) and math.isclose(max(rates), 1.0)
    assert rates.index(max(rates)) == 4 and math.isclose(rates[-1], 1 / 25 / 1e4)
    assert math.isclose(momenta[0], 0.95) and math.isclose(momenta[4], 0.85)
    with pytest.raises(ConfigError, match="Tried to step 21 times"):
        schedule.step()


def test_a_scale_function_goes_through_the_state_if_it_is_an_object():
    class Scale:
        def __init__(self, value):
            self.value = value

        def __call__(self, x):
            return self.value

    opt = optimizer(momentum=0.9)
    first = ls.CyclicLR(opt, 0.1, 1.0, 4, scale_fn=Scale(0.5))
    state = first.state_dict()
    assert state["_scale_fn_custom"] == {"value": 0.5} and "optimizer" not in state
    second = ls.CyclicLR(optimizer(momentum=0.9), 0.1, 1.0, 4, scale_fn=Scale(1.0))
    second.load_state_dict(state)
    assert second.scale_fn(3) == 0.5
    plain = ls.CyclicLR(optimizer(momentum=0.9), 0.1, 1.0, 4, scale_fn=lambda x: 1.0)
    assert plain.state_dict()["_scale_fn_custom"] is None
