"""Actions of a plan as text."""

from __future__ import annotations

import pytest

from disttrain.distributed.pipelining.actions import (
    Action,
    Kind,
    parse_action,
)
from disttrain.distributed.pipelining.placement import looped, vee
from disttrain.errors import ConfigError


def test_places() -> None:
    assert looped(2, 4) == (0, 1, 0, 1) and vee(2, 4) == (0, 1, 1, 0)
    assert vee(3, 6) == (0, 1, 2, 2, 1, 0)
    with pytest.raises(ConfigError, match="same number of stages"):
        looped(2, 3)


def test_actions_are_text() -> None:
    for text in ("2F0", "0B13", "1I2", "1W2", "0SEND_F3", "1RECV_F3", "1SEND_B3", "0RECV_B3"):
        assert str(parse_action(text)) == text
    assert (Kind.FULL_BACKWARD, Kind.BACKWARD_WEIGHT) == (Kind.B, Kind.W)
    named = Action.from_str("3I4")
    assert (named.stage_index, named.computation_type, named.microbatch_index) == named
    assert parse_action("10SEND_B2") == Action(10, Kind.SEND_B, 2)
    with pytest.raises(ConfigError, match="'2X0' is no action"):
        parse_action("2X0")
