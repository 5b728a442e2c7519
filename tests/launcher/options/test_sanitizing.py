"""``dtrun --sanitize``: flags, and what ranks are told."""

from __future__ import annotations

import os

import pytest

from disttrain_launcher.command.preloads import SANITIZE, observers
from disttrain_launcher.options import forwarding
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.job import make_plan
from disttrain_launcher.worker.environment import worker_env


def test_nothing_is_looked_for_without_the_flag():
    assert parse(["train.py", "--sanitize"]).sanitize == ()
    assert observers((), ()) == ()


@pytest.mark.parametrize(
    "words, kinds, program",
    [
        (["--sanitize", "train.py"], "1", ("train.py",)),
        (["--sanitize", "--nproc-per-node", "2", "train.py", "x"], "1", ("train.py", "x")),
        (["--sanitize=error,dead-activations", "train.py"], "error,dead-activations",
         ("train.py",)),
    ],
)  # fmt: skip
def test_the_flag_alone_or_with_kinds(words, kinds, program):
    options = parse(words)
    assert (options.sanitize[0], options.program) == (kinds, program)


def test_ranks_are_told():
    options = parse(["--sanitize", "--sanitize-report", "found.jsonl", "train.py"])
    plan = make_plan(options, 1, observers=observers(options.record, options.sanitize))
    env = worker_env(plan, plan.alone(), 0)
    assert env["DISTTRAIN_SANITIZE"] == "1"
    assert env["DISTTRAIN_SANITIZE_REPORT"] == os.path.abspath("found.jsonl")
    assert plan.observers == (SANITIZE,)
    assert SANITIZE in plan.preloads


def test_it_is_handed_on_to_other_nodes():
    p, actions = forwarding.parser(("help", "program", "print_limits", "print_completion"))
    for words, expected in ((["--sanitize"], "--sanitize=1"), (["--sanitize=error"],) * 2):
        given = p.parse_args([*words, "train.py"])
        said = expected if isinstance(expected, str) else expected[0]
        assert said in forwarding.words(actions, given)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--sanitize-report", "x"], "Add --sanitize"),
        (["--sanitize=train.py"], "--sanitize=1"),
        (["--sanitize", "--no-python"], "must be Python"),
    ],
)
def test_what_cannot_be_meant(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        parse([*words, "train.py"])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
