"""The parser: where the program begins, spellings of flags, hints, and flags that only print."""

from __future__ import annotations

import argparse

import pytest

from disttrain_launcher.options.command_line import parse, parser
from disttrain_launcher.options.parsing import Parser, dashes, flags_of, program_of

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--nproc-per-noed", "--nproc-per-node"),
        ("--max_restart=", None),
        ("--dry-runn", "--dry-run"),
    ],
)
def test_a_mistyped_flag_has_a_hint(word, meant, capsys):
    if meant is None:
        assert parse([f"{word}2", "x.py"], {}).max_restarts == 2  # an abbreviation
        return
    with pytest.raises(SystemExit) as stop:
        parse([word, "x.py"], {})
    assert stop.value.code == 2 and f"did you mean {meant}?" in capsys.readouterr().err


def test_a_flag_that_is_like_no_other_has_none(capsys):
    with pytest.raises(SystemExit):
        parse(["--qqqqqqqqqqq", "x.py"], {})
    assert "did you mean" not in capsys.readouterr().err


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help"], {})
    said = capsys.readouterr().out
    assert stop.value.code == 0 and "examples:" in said and "exit codes:" in said
    assert "--nproc-per-node 4 train.py" in said and "report.json" in said


def test_limits_are_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--print-limits"], {})
    said = capsys.readouterr().out
    assert stop.value.code == 0
    for name in ("ulimit -n", "ulimit -u", "pids.max", "ulimit -f", "store: total_bytes"):
        assert name in said


def small():
    """A parser with flags of every kind."""
    p = Parser(prog="p")
    p.add_argument("-m", "--module", action="store_true")
    p.add_argument("-t", "--tee", default="0")
    p.add_argument("-r", "--redirects", default="0")
    p.add_argument("--re-read", action="store_true")
    p.add_argument("--two-words", default="")
    p.add_argument("--secret", help=argparse.SUPPRESS)
    p.add_argument("program", nargs=argparse.REMAINDER)
    return p


@pytest.mark.parametrize(
    "text, want",
    [
        ("--a_b=c_d", "--a-b=c_d"),
        ("--a_b_c", "--a-b-c"),
        ("a_b", "a_b"),
        ("-a_b", "-a_b"),
        ("--=x_y", "--=x_y"),
    ],
)
def test_only_the_names_of_flags_get_dashes(text, want):
    assert dashes(text) == want


@pytest.mark.parametrize(
    "words, at",
    [
        ("t.py --tee 3", 0),
        ("-m t --tee", 1),
        ("--tee 3 t.py", 2),
        ("--tee=3 t.py", 1),
        ("-t 3 t.py", 2),
        ("-t3 t.py", 1),
        ("-mt 3 t.py", 2),
        ("-mt3 t.py", 1),
        ("--two_w x t.py", 2),
        ("--re-read t.py", 1),
        ("--tee", 1),
        ("- t.py", 0),
        ("-m -- t.py", 1),
        ("--unknown t.py", 1),
    ],
)
def test_the_program_begins_after_the_flags_and_their_values(words, at):
    words = words.split()
    assert small()._program_at(words) == at
    if "--unknown" not in words and words != ["--tee"]:
        assert small().parse_args(words).program == words[at:]


@pytest.mark.parametrize(
    "words, program",
    [
        ("-- t.py --a", "t.py --a"),
        ("t.py -- --a", "t.py --a"),
        ("t.py --a -- b", "t.py --a -- b"),
        ("-- t.py -- a", "t.py -- a"),
        ("", ""),
        ("t.py", "t.py"),
    ],
)
def test_two_dashes_beside_the_program_are_none_of_its_arguments(words, program):
    assert program_of(words.split()) == program.split()


def test_shortened_flags_that_torchrun_has_mean_torchrun_s():
    assert small().parse_args(["--re", "3", "t.py"]).redirects == "3"
    assert small().parse_args(["--re-r", "t.py"]).re_read
    assert small().parse_args(["--t", "3", "t.py"]).tee == "3"


def test_help_shows_all_flags_but_those_that_are_hidden():
    shown = {flag for action in flags_of(small()) for flag in action.option_strings}
    assert {"--tee", "-t", "--two-words", "--help"} <= shown and "--secret" not in shown
    assert "--print-limits" in {f for a in flags_of(parser()) for f in a.option_strings}


@pytest.mark.parametrize("columns, widest", [("60", 58), ("200", 198)])
def test_help_is_as_wide_as_is_said(columns, widest, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    p = Parser(prog="p", description="word " * 100)
    assert p.format_help()
    lines = p._get_formatter()._width
    assert lines == widest
