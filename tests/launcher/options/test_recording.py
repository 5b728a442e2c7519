"""``dtrun --record``: flags, and what ranks are told."""

from __future__ import annotations

import os

import pytest

from disttrain_launcher.command.preloads import RECORD, observers
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.job import make_plan
from disttrain_launcher.worker.environment import worker_env


def test_nothing_is_recorded_without_the_flag():
    assert parse(["train.py"]).record == ()
    assert observers(()) == ()


def test_ranks_are_told(tmp_path):
    words = ["--record", "here", "--record-level", "modules", "--record-steps", "3:5",
             "--record-ranks", "0,2", "--record-payloads"]  # fmt: skip
    options = parse([*words, "train.py"])
    plan = make_plan(options, 1, observers=observers(options.record))
    env = worker_env(plan, plan.alone(), 0)
    assert env["DISTTRAIN_RECORD_DIR"] == os.path.abspath("here")
    assert (env["DISTTRAIN_RECORD"], env["DISTTRAIN_RECORD_STEPS"]) == ("modules", "3:5")
    assert (env["DISTTRAIN_RECORD_RANKS"], env["DISTTRAIN_RECORD_PAYLOADS"]) == ("0,2", "1")
    assert plan.observers == (RECORD,)
    assert RECORD in plan.preloads


@pytest.mark.parametrize(
    "words, said",
    [
        (["--record-steps", "1:2"], "Add --record DIR"),
        (["--record", "a", "--record-steps", "2:1"], "A < B"),
        (["--record", "a", "--record-ranks", "x"], "ranks such as 0,2"),
        (["--record", "a", "--no-python"], "must be Python"),
    ],
)
def test_what_cannot_be_meant(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        parse([*words, "train.py"])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
