"""Flags of outputs and events: what they say, per rank, and what is refused."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from disttrain_launcher.options.logs import add_flags, options_of, streams_of


def read(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return options_of(parser, parser.parse_args(words))


def test_without_flags_nothing_goes_to_files():
    assert read() == {
        "log_dir": None, "redirects": "0", "tee": "0", "local_ranks_filter": None,
        "duplicates": ((), ()), "event_log": "null", "blackbox": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "values"),
    [("3", [3, 3, 3]), ("0:1,1:2", [1, 2, 0]), ("0:1,2:3", [1, 0, 3]), ("2,1:0", [2, 0, 2])],
)
def test_streams_of_each_rank(text, values):
    assert read("-r", text)["redirects"] == text
    assert [streams_of(text, rank) for rank in range(3)] == values


def test_words_between_commas_may_have_commas():
    found = read("--duplicate-stdout-filters", "loss,a,,b", "--duplicate-stderr-filters", "x,")
    assert found["duplicates"] == (("loss", "a,b"), ("x",))


def test_ranks_that_are_shown():
    assert read("--local-ranks-filter", "2, 0")["local_ranks_filter"] == (2, 0)


@pytest.mark.parametrize(
    "words",
    [("--redirects", "4"), ("--tee", "x:1"), ("--redirects", ":1"), ("--tee", ""),
     ("--local-ranks-filter", "0,x"), ("--event-log-handler", "file")],
)  # fmt: skip
def test_what_is_refused_names_its_flag(words, capsys):
    with pytest.raises(SystemExit):
        read(*words)
    assert words[0] in capsys.readouterr().err


def test_a_variable_is_checked_as_a_flag_is(capsys):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    parser.set_defaults(event_log_handler="file")
    with pytest.raises(SystemExit):
        options_of(parser, parser.parse_args([]))
    assert "--event-log-handler file: one of null, console" in capsys.readouterr().err
