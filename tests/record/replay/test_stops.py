"""Where a replay stops."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from disttrain.record.replay.stops import Stops, Until, parse

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize("text, found", [
    ("", None), ("step:3", Until("step", 3)), ("op:add", Until("op", 1, "add")),
    ("op:all_reduce#12", Until("op", 12, "all_reduce")), ("call:7", Until("call", 7)),
])  # fmt: skip
def test_places(text, found):
    assert parse(text) == found


@pytest.mark.parametrize("text", ["step", "step:x", "op:", "op:a#", "call:-1", "step:3 ", "line:4"])
def test_what_is_no_place_is_said(text):
    with pytest.raises(ConfigError, match="op:NAME#2"):
        parse(text)


def stopped(until: str, debug: bool = False):
    stops, seen = Stops(parse(until), debug), []
    stops.opened = lambda frame, why: seen.append((frame.f_code.co_filename, why))
    for step in range(3):
        stops.step(step)
        for name in ("add", "mul", "add"):
            stops.operation(name)
        stops.call(step, "barrier")
    stops.difference()
    return seen


def test_it_stops_there_once():
    assert [why for _, why in stopped("step:2")][:1] == ["step 2 begins"]
    assert [why for _, why in stopped("op:add#3")][:1] == ["before add (number 3)"]
    assert [why for _, why in stopped("op:barrier#2")][:1] == ["before barrier (number 2)"]
    assert [why for _, why in stopped("call:1")][:1] == ["before call 1: barrier"]
    assert stopped("step:2")[0][0] == __file__


def test_differences_are_for_the_debugger_alone():
    assert stopped("") == []
    assert [why for _, why in stopped("", True)] == ["here"]
