"""The constants: where a value is looked for, and that each says what it is."""

from __future__ import annotations

import json

import pytest

from disttrain.distributed.planning.constants import DATA, Constants, constants


def test_the_most_special_value_is_taken():
    found = Constants({"a.x.y": 1, "a.x": 2, "a.y": 3, "a.default": 4, "b": 5})
    assert [found.get("a", *of) for of in (("x", "y"), ("x", "z"), ("z", "y"), ("z",), ())] == [
        1, 2, 3, 4, 4,
    ]  # fmt: skip
    assert found.get("b", "x") == 5
    with pytest.raises(KeyError):
        found.get("c", "x")


def test_each_has_a_meaning_and_a_value_that_can_be():
    table = json.loads((DATA / "constants.json").read_text())
    assert len(table) < 50 and all(entry["about"] for entry in table.values())
    for name, value in constants().values.items():
        assert value >= 0, name
        if name.split(".")[0] in ("products", "attention", "memory", "network", "fast_links"):
            assert value < 1, name  # no more than a data sheet promises
