"""Options of jobs that outlive failures: their fields, and what is no use."""

from __future__ import annotations

import argparse

import pytest

from launcher.options import elastic


def options(*words: str, **others: object) -> dict:
    p = argparse.ArgumentParser()
    elastic.add_flags(p)
    given = p.parse_args(words)
    for name, value in {
        "simulate": 0,
        "backend": None,
        "nnodes": "1",
        "spares": 0,
        **others,
    }.items():
        setattr(given, name, value)
    return elastic.options_of(p, given)


def test_defaults():
    assert options() == {
        "max_restarts": 0, "min_ranks": 0, "replace_ranks": False, "on_term": "exit",
        "shutdown_timeout": 5.0,
    }  # fmt: skip


def test_who_saves_has_longer():
    assert options("--on-term", "checkpoint")["shutdown_timeout"] == 30.0
    assert options("--on-term", "checkpoint", "--shutdown-timeout", "0")["shutdown_timeout"] == 0


def test_replaced_ranks_need_one_that_stays():
    found = options("--replace-ranks", "--max-restarts", "2")
    assert found["replace_ranks"] and found["min_ranks"] == 1
    for several in ({"nnodes": "2"}, {"spares": 1}):  # where all are started anew
        found = options("--replace-ranks", "--max-restarts", "2", **several)
        assert found["replace_ranks"] and found["min_ranks"] == 0


@pytest.mark.parametrize(
    ("words", "others", "told"),
    [
        (["--max-restarts", "-1"], {}, "--max-restarts -1: at least 0"),
        (["--min-ranks", "-2"], {}, "--min-ranks -2"),
        (["--shutdown-timeout", "-3"], {}, "--shutdown-timeout -3"),
        (["--replace-ranks"], {}, "add --max-restarts N"),
        (["--replace-ranks", "--max-restarts", "1"], {"simulate": 4}, "one machine"),
        (["--replace-ranks", "--max-restarts", "1"], {"backend": "mpi"}, "one machine"),
        ([], {"on_term": "sleep"}, "exit or checkpoint is needed"),
    ],
)
def test_what_is_no_use(words, others, told, capsys):
    with pytest.raises(SystemExit) as ended:
        options(*words, **others)
    assert ended.value.code == 2 and told in capsys.readouterr().err
