"""Parameter groups: what may stand in them, and what hyperparameters may be."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError
from disttrain.optim.groups import as_groups, given, required, take


def leaf():
    return dt.ones(2, requires_grad=True)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0; it must be at least 0"),
        ({"lr": float("nan")}, "Invalid learning rate"),
        ({"eps": -1e-9}, "Invalid epsilon value"),
        ({"weight_decay": -1.0}, "Invalid weight_decay value"),
        ({"betas": (0.9, 1.0)}, "beta parameter at index 1: 1.0"),
        ({"betas": (-0.1, 0.9)}, "beta parameter at index 0"),
        ({"lr": dt.ones(2)}, "Tensor lr must be 1-element"),
    ],
)
def test_values_without_a_meaning_are_refused(wrong, match):
    with pytest.raises(ConfigError, match=match):
        dt.optim.Adam([leaf()], **wrong)


def test_bounds_that_lie_on_both_sides():
    with pytest.raises(ConfigError, match=r"in 0.0..1.0"):
        dt.optim.Adadelta([leaf()], rho=1.5)


@pytest.mark.parametrize("other", ["foreach", "differentiable"])
def test_fused_stands_alone(other):
    with pytest.raises(DTypeError, match=f"`{other}`"):
        dt.optim.Adam([leaf()], fused=True, **{other: True})


def test_a_group_takes_the_defaults_that_it_does_not_give():
    own = dt.optim.SGD([{"params": leaf(), "lr": 0.5}, {"params": [leaf()]}], lr=0.1)
    assert [group["lr"] for group in own.param_groups] == [0.5, 0.1]
    assert [len(group["params"]) for group in own.param_groups] == [1, 1]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: dt.optim.SGD([], lr=1), ConfigError, "empty parameter list"),
        (lambda: dt.optim.SGD(leaf(), lr=1), TypeError, "one Tensor was given"),
        (lambda: dt.optim.SGD([1.0], lr=1), TypeError, "one of the params is float"),
        (lambda: dt.optim.SGD([leaf() * 2], lr=1), ConfigError, "non-leaf"),
        (lambda: dt.optim.SGD([{"params": {leaf()}}], lr=1), TypeError, "ordered collections"),
        (lambda: dt.optim.SGD([("a", leaf()), leaf()], lr=1), ConfigError, "1 of 2 have one"),
    ],
)
def test_what_is_no_list_of_leaves_is_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_parameter_stands_in_one_group():
    p = leaf()
    own = dt.optim.SGD([p], lr=0.1)
    with pytest.raises(ConfigError, match="more than one parameter group"):
        own.add_param_group({"params": [p]})
    assert len(own.param_groups) == 1


def test_names_stand_in_all_groups_or_in_none():
    own = dt.optim.SGD([("a", leaf())], lr=0.1)
    assert own.param_groups[0]["param_names"] == ["a"]
    with pytest.raises(ConfigError, match="without names"):
        own.add_param_group({"params": [leaf()]})


def test_the_parts():
    assert take({"lr": 1, "eps": 2, "rho": 3}, "lr", "rho") == {"lr": 1, "rho": 3}
    assert given({"self": 0, "params": [], "lr": 1, "__class__": int}) == {"lr": 1}
    assert as_groups("SGD", iter([1, 2])) == [{"params": [1, 2]}]
    assert repr(required) == "<required parameter>"
