"""The pure parts of an optimizer over several workers: who has what, state dicts, errors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import StateDictError
from disttrain.rpc.optim.owners import Layout, changed, plain, settings_of


def params(*numbers):
    return [f"p{n}" for n in numbers]


def test_owners_have_the_groups_in_which_they_have_parameters_in_order():
    layout = Layout(["aba", "bb", "ca"])
    groups = [
        {"params": params(0, 1, 2), "lr": 0.1},
        {"params": params(3, 4), "lr": 0.2, "param_names": ["x", "y"]},
        {"params": params(5, 6), "lr": 0.3},
    ]
    assert layout.part_of(groups, "a") == [
        {"params": params(0, 2), "lr": 0.1},
        {"params": params(6), "lr": 0.3},
    ]
    assert layout.part_of(groups, "b") == [
        {"params": params(1), "lr": 0.1},
        {"params": params(3, 4), "lr": 0.2, "param_names": ["x", "y"]},
    ]
    assert [layout.numbers(o) for o in "abc"] == [[0, 2, 6], [1, 3, 4], [5]]


def saved_over(owners, groups, state):
    """The state dicts of owners, each as its own optimizer would give it."""
    layout = Layout(owners)
    return {
        owner: {
            "state": {n: state[g] for n, g in enumerate(layout.numbers(owner)) if g in state},
            "param_groups": [
                {**g, "params": list(range(start, start + len(g["params"])))}
                for g, start in with_starts(layout.part_of(groups, owner))
            ],
        }
        for owner in layout.parts
    }


def with_starts(groups):
    start = 0
    for group in groups:
        yield group, start
        start += len(group["params"])


@pytest.mark.parametrize("owners", [["aba", "bb"], ["aaa", "aa"], ["abc", "cb"], ["cba", "dd"]])
def test_state_is_the_same_whoever_owns_the_parameters(owners):
    groups = [{"params": params(0, 1, 2), "lr": 0.1}, {"params": params(3, 4), "lr": 0.2}]
    state = {0: {"m": "m0"}, 1: {"m": "m1"}, 4: {"m": "m4"}}
    whole = Layout(owners).whole_state(saved_over(owners, groups, state), groups)
    assert whole == {
        "state": state,
        "param_groups": [{"params": [0, 1, 2], "lr": 0.1}, {"params": [3, 4], "lr": 0.2}],
    }
    for others in (["abc", "cb"], ["bbb", "ab"]):
        parts = Layout(others).split_state(whole)
        assert parts == saved_over(others, groups, state)
        assert Layout(others).whole_state(parts, groups) == whole


def test_state_of_an_optimizer_of_one_process_is_split_as_it_is():
    model = dt.nn.Linear(2, 2)
    local = dt.optim.Adam(model.parameters(), lr=0.1)
    model(dt.ones(2)).sum().backward()
    local.step()
    parts = Layout(["ab"]).split_state(local.state_dict())
    assert {owner: list(part["state"]) for owner, part in parts.items()} == {"a": [0], "b": [0]}
    assert parts["b"]["state"][0] is local.state_dict()["state"][1]


def test_keys_that_are_no_numbers_go_everywhere_and_settings_of_the_owner_win():
    parts = {
        "a": {"state": {"common": 1, 0: 2}, "param_groups": [{"params": [0], "lr": 5.0}]},
        "b": {"state": {"common": 1}, "param_groups": [{"params": [0], "lr": 6.0}]},
    }
    layout = Layout(["ab"])
    whole = layout.whole_state(parts, [{"params": params(0, 1), "lr": 1.0}])
    assert whole["state"] == {0: 2, "common": 1}
    assert whole["param_groups"] == [{"params": [0, 1], "lr": 5.0}]
    assert layout.split_state(whole)["b"]["state"] == {"common": 1}


def test_other_groups_than_were_saved_are_told():
    whole = {"state": {}, "param_groups": [{"params": [0, 1]}, {"params": [2]}]}
    with pytest.raises(StateDictError, match=r"groups of \[2, 1\].*groups of \[3\]"):
        Layout(["aab"]).split_state(whole)


def test_changed_settings():
    one = dt.tensor(0.1)
    known = {"lr": 0.1, "betas": (0.9, 0.99), "rate": one}
    assert changed(dict(known), known) == {}
    assert changed({**known, "lr": 0.2, "new": None}, known) == {"lr": 0.2, "new": None}
    assert changed({**known, "betas": (0.9, 0.98)}, known) == {"betas": (0.9, 0.98)}
    assert changed({**known, "rate": dt.tensor(0.1)}, known) == {}
    assert "rate" in changed({**known, "rate": dt.tensor(0.3)}, known)
    assert "rate" in changed({**known, "rate": 0.1}, known)
    assert "lr" in changed({**known, "lr": True}, {**known, "lr": 1})
    assert settings_of({"params": [], "param_names": [], "lr": 1}) == {"lr": 1}


def test_what_is_no_data_stays_with_its_optimizer():
    settings = {"lr": 0.1, "betas": (0.9, [1, "a"]), "fn": len, "lock": object(), "mixed": (1, len)}
    assert plain(settings, ()) == {"lr": 0.1, "betas": (0.9, [1, "a"])}
    assert list(plain({"t": dt.ones(1)}, (dt.Tensor,))) == ["t"]
