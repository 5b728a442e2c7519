"""Options by name."""

from __future__ import annotations

import pytest

from disttrain.context import thread
from disttrain.func.trees.options import Block, Options


def test_options_hold_for_good_or_for_a_block():
    told = []
    options = Options(
        "test.options", {"a": 1, "wide": False}, {"wide": "test.wide"}, {"a": told.append}
    )
    options.update("a", 2)
    assert options.a == 2 and told == [2] and options.values == {"a": 2, "wide": False}
    wide = Block(options, "wide", True)
    with wide():
        assert options.wide and thread.rank.slots["test.wide"]
        with wide(False):
            assert not wide.value
    assert not options.wide
    with pytest.raises(AttributeError, match="Unrecognized config option: b"):
        options.update("b", 1)
