"""``disttrain plan``: which program it loads, what that must have, what it prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from disttrain.cli import main
from disttrain.cli.plan import load_subject
from disttrain.cli.programs import find_program

ROOT = Path(__file__).parents[2]


def test_command_prints_a_table(capsys):
    config = str(ROOT / "configs" / "gpt_char.toml")
    assert main(["plan", config, "--world", "8", "--memory", "5.2MB"]) == 0
    head, *lines, note = capsys.readouterr().out.splitlines()
    assert note.startswith("* zero2: ") and lines[3].startswith("zero2* ")
    assert head.split()[-3:] == ["fits", "5.2", "MB"]
    answers = {line.split("  ")[0]: line.split()[-1] for line in lines}
    assert answers["ddp"] == "no" and answers["fsdp"] == "yes"
    assert main(["plan", config, "--world", "8", "--json", "--model.width", "192"]) == 0
    rows = {r["strategy"]: r for r in json.loads(capsys.readouterr().out)}
    assert rows["fsdp"]["fits"] is None
    assert 8 * rows["fsdp"]["parameters"] == pytest.approx(rows["ddp"]["parameters"], rel=0.01)


def test_command_says_what_is_missing(tmp_path, capsys):
    config = str(ROOT / "configs" / "gpt_char.toml")
    (tmp_path / "c.toml").write_text("")
    (tmp_path / "empty.py").write_text("")
    for words, message in (
        ([config, "--world", "3"], "a batch of 32 for 3 ranks given"),
        ([str(tmp_path / "none.toml"), "--world", "2"], "there is no such file"),
        ([str(tmp_path / "c.toml"), "--world", "2"], "name the program with --program"),
        ([config, "--world", "2", "--program", str(tmp_path / "empty.py")], "has no function"),
        ([config, "--world", "2", "--program", str(tmp_path / "x.py")], "no such file"),
        ([config, "--world", "2", "--memory", "much"], "'much' given"),
    ):
        assert main(["plan", *words]) == 2
        shown = capsys.readouterr().err
        assert message in shown and shown.count("plan:") == 1


TRAINS = "import disttrain.nn as nn\nnn.Linear(2, 2)\nraise SystemExit('it has trained')\n"


@pytest.mark.parametrize(("text", "message"), [
    (TRAINS, "has no function subject(words). A plan needs one"),
    ("class A:\n    subject = 1\ndef f():\n    subject = 1\n", "has no function subject"),
    ("def subject(words):\n    return 1 / 0\n", "line 2 raised ZeroDivisionError: division by"),
    ("subject = len\n" + TRAINS, "line 4 raised SystemExit: it has trained"),
    ("if True:\n    from os import fspath as subject\n", "raised TypeError"),
    ("from builtins import len as subject", "returned int, not a Subject"),
    ("def subject(words:\n", "is no Python program"),
])  # fmt: skip
def test_what_a_program_must_have_to_be_planned(tmp_path, capsys, text, message):
    config, program = tmp_path / "c.toml", tmp_path / "train.py"
    config.write_text("")
    program.write_text(text)
    assert main(["plan", str(config), "--world", "2"]) == 2
    assert message in capsys.readouterr().err


def test_the_program_of_a_config_lies_above_it():
    assert find_program(ROOT / "configs" / "gpt_char.toml") == ROOT / "scripts" / "train.py"


def test_a_program_finds_what_lies_beside_it_and_gets_its_words(tmp_path):
    (tmp_path / "beside_it.py").write_text("BATCH = 12\n")
    program = tmp_path / "train.py"
    program.write_text(
        "from disttrain.distributed import planning\nfrom beside_it import BATCH\n"
        "def subject(words):\n"
        "    return planning.Subject(None, None, BATCH * len(words))\n"
    )
    before = list(sys.path)
    assert load_subject(program, ["a", "b"]).batch_size == 24
    assert sys.path == before
    sys.modules.pop("beside_it")
