"""What was found: each once, shown by one rank, and summed up."""

from __future__ import annotations

import pytest

from disttrain.context import Rank
from disttrain.sanitize.places import Place
from disttrain.sanitize.report import Findings, SanitizeError
from disttrain.sanitize.table import KINDS

HERE, THERE = Place("train.py", 3), Place("train.py", 9)


def test_each_kind_and_place_once(capfd):
    found = Findings(KINDS, (), Rank(1, 2))
    assert found.add("growing-graph", HERE, "it grows", 5)
    assert not found.add("growing-graph", HERE, "it grows", 6)
    assert found.add("growing-graph", THERE, "it grows", 6)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "sanitize[rank 1]: error: growing-graph: it grows"
    assert said[1].strip() == "at train.py:3, step 5" and len(said) == 6


def test_what_others_have_told_is_not_shown_again(capfd):
    found, asked = Findings(KINDS, (), Rank(1, 2)), []
    found.first_of_all = lambda key: bool(asked.append(key))
    assert found.add("growing-graph", HERE, "it grows", 5)
    assert capfd.readouterr().err == "" and asked == ["growing-graph train.py:3"]
    assert "error: growing-graph at train.py:3" in found.summary()


def test_advice_comes_at_the_end(capfd):
    found = Findings(KINDS, (), Rank())
    assert found.summary() == ""
    found.add("weight-decay-on-norms", HERE, "Net.norm.weight", 1)
    assert capfd.readouterr().err == ""
    found.add("dead-activations", HERE, "all", 1)
    first, *rest = found.summary().splitlines()
    assert first == "1 warning, 1 advice:"
    assert "weight_decay=0" in rest[-1]


def test_silenced_and_unwanted():
    found = Findings({"growing-graph"}, (), Rank())
    assert not found.add("dead-activations", HERE, "", 1)
    found.silenced.append(frozenset({"growing-graph"}))
    assert not found.is_open("growing-graph") and not found.add("growing-graph", HERE, "", 1)
    found.silenced.clear()
    assert found.is_open("growing-graph")


def test_raising():
    found = Findings(KINDS, {"growing-graph"}, Rank())
    with pytest.raises(SanitizeError, match="it grows") as caught:
        found.add("growing-graph", HERE, "it grows", 5)
    assert caught.value.finding.row()["line"] == 3
    assert found.found == [caught.value.finding]
