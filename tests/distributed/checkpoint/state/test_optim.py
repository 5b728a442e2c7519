"""States of optimizers by names: flat and back, begun by nothing, taken by groups."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, optim
from disttrain.distributed.checkpoint.state import optim as states
from disttrain.distributed.checkpoint.state.names import Names
from disttrain.errors import StateDictError

pytestmark = pytest.mark.simulated


def net():
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def test_flat_names_and_back():
    out = {
        "state": {"a.w": {"m": 1, "step": 2}, "b": {"m": 3}},
        "param_groups": [{"params": ["a.w", "b"], "lr": 0.5}, {"params": ["c"], "lr": 0.1}],
    }
    flat = states.flattened(out)
    assert flat == {
        "state.a.w.m": 1, "state.a.w.step": 2, "state.b.m": 3,
        "param_groups.a.w.lr": 0.5, "param_groups.b.lr": 0.5, "param_groups.c.lr": 0.1,
    }  # fmt: skip
    again = states.nested(flat)
    assert again["state"] == out["state"]
    assert {tuple(g["params"]): g["lr"] for g in again["param_groups"]} == {
        ("a.w",): 0.5, ("b",): 0.5, ("c",): 0.1,
    }  # fmt: skip


def test_state_begins_as_the_first_step_would_make_it():
    model = net()
    opt = optim.Adam(model.parameters())
    states.begin(opt)
    assert len(opt.state) == 4
    for p, state in opt.state.items():
        assert state["step"].item() == 0 and state["exp_avg"].shape == p.shape
    kept = opt.state[model[0].weight]["exp_avg"]
    states.begin(opt)  # what is there stays
    assert opt.state[model[0].weight]["exp_avg"] is kept
    frozen = net()
    frozen[0].requires_grad_(False)
    opt = optim.Adam(frozen.parameters())
    states.begin(opt)
    assert len(opt.state) == 2


def test_an_optimizer_of_ones_own_steps_by_nothing():
    class Own(optim.Optimizer):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    with dt.no_grad():
                        p.sub_(p.grad * group["lr"] + group["lr"])
                    self.state[p]["seen"] = 1

    for rate in (0.5, dt.tensor(0.5)):
        model = net()
        before = [p.tolist() for p in model.parameters()]
        opt = Own(model.parameters(), {"lr": rate})
        states.begin(opt)
        assert [p.tolist() for p in model.parameters()] == before and len(opt.state) == 4
        assert opt.param_groups[0]["lr"] is rate
        assert all(p.grad is None for p in model.parameters())


def test_gradients_that_are_there_are_left_alone():
    class Own(optim.Optimizer):
        def step(self, closure=None):
            pytest.fail("stepped")

    model = net()
    model(dt.ones(1, 2)).sum().backward()
    states.begin(Own(model.parameters(), {"lr": 0.1}))


def test_states_go_to_the_optimizer_that_has_the_parameter():
    model = net()
    first = optim.SGD(model[0].parameters(), lr=0.5, momentum=0.9)
    second = optim.Adam([{"params": [model[1].weight], "lr": 0.25}, {"params": [model[1].bias]}])
    model(dt.ones(1, 2)).sum().backward()
    for opt in (first, second):
        opt.step()
    names = Names(model)
    out = states.save(model, (first, second), names, sharded=False)
    assert sorted(out["state"]) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    again = net()
    new = [
        optim.Adam(again[1].parameters()),
        optim.SGD(again[0].parameters(), lr=9.0, momentum=0.1),
    ]
    states.load(again, new, Names(again), out, from_rank0=False)
    assert new[1].param_groups[0]["lr"] == 0.5 and new[1].param_groups[0]["momentum"] == 0.9
    assert new[0].param_groups[0]["lr"] == 0.25  # of the first parameter of the group
    got = new[0].state[again[1].weight]["exp_avg"].tolist()
    assert got == second.state[model[1].weight]["exp_avg"].tolist()


def test_a_state_of_other_parameters_is_refused():
    model, other = net(), nn.Sequential(nn.Linear(2, 3))
    opt = optim.SGD(other.parameters(), lr=0.1)
    out = states.save(other, (opt,), Names(other), sharded=False)
    second = optim.SGD(model[1].parameters(), lr=0.1)
    with pytest.raises(StateDictError):
        states.load(model, (second,), Names(model), out, from_rank0=False)


def test_names_of_types():
    assert states.kind_of("float32") == "f4" and states.kind_of("bfloat16").itemsize == 2
