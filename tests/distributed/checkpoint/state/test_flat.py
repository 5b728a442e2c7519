"""Nested state dicts as flat ones, and back."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed.checkpoint.state.flat import Index, flatten_state_dict, set_element
from disttrain.errors import ConfigError


def back(flat, paths):
    root = {}
    for name, value in flat.items():
        set_element(root, paths[name], value)
    return root


def test_there_and_back():
    x = dt.ones(2)
    state = {"model": {0: {"w": x}, "b": [x, {"c": 1}]}, "plain": [1, 2], "t": (x, 3), "n": None}
    flat, paths = flatten_state_dict(state)
    assert list(flat) == ["model.0.w", "model.b.0", "model.b.1.c", "plain", "t", "n"]
    assert type(paths["model.b.0"][-1]) is Index and type(paths["model.0.w"][1]) is int
    assert back(flat, paths) == state


def test_empty_dicts_are_values_where_asked():
    assert flatten_state_dict({"a": {}, "b": {"c": {}}})[0] == {}
    assert flatten_state_dict({"a": {}, "b": {"c": {}}}, empty=True)[0] == {"a": {}, "b.c": {}}


def test_two_values_of_one_name_are_refused():
    with pytest.raises(ConfigError, match=r"two values have the name 'a\.b'"):
        flatten_state_dict({"a": {"b": 1}, "a.b": 2})


def test_lists_grow_to_what_is_put_there():
    root = {}
    set_element(root, ("x", Index(2), "y"), 5)
    assert root == {"x": [None, None, {"y": 5}]}
