"""Training programs that commands ask: which one is found, and how its function is called."""

from __future__ import annotations

import pytest

from disttrain.cli import programs
from disttrain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "binds"),
    [
        ("def subject(words): ...", True),
        ("class subject: ...", True),
        ("from other import make as subject", True),
        ("from other import *", True),
        ("import subject", True),
        ("subject = other = None", True),
        ("with open('x') as subject: ...", True),
        ("try:\n    from a import b\nexcept ImportError:\n    subject = None", True),
        ("from other import subject as make", False),
        ("def f():\n    def subject(words): ...", False),
        ("print(subject)", False),
        ("x.subject = 1", False),
        ("", False),
    ],
)
def test_what_the_top_level_binds(tmp_path, text, binds):
    path = tmp_path / "p.py"
    path.write_text(text)
    assert programs.binds(path, "subject") is binds


def test_the_nearest_program_above_a_config(tmp_path):
    deep = tmp_path / "a" / "configs"
    deep.mkdir(parents=True)
    config = deep / "c.toml"
    config.write_text("")
    (tmp_path / "train.py").write_text("")
    assert programs.find_program(config) == tmp_path / "train.py"
    (tmp_path / "a" / "scripts").mkdir()
    (tmp_path / "a" / "scripts" / "train.py").write_text("")
    assert programs.find_program(config) == tmp_path / "a" / "scripts" / "train.py"
    (tmp_path / "a" / "train.py").write_text("")
    assert programs.find_program(config) == tmp_path / "a" / "train.py"


def test_a_function_gets_its_arguments_and_its_errors_name_the_line(tmp_path):
    program = tmp_path / "train.py"
    program.write_text("def trained(run, words):\n    return [run, *words] if words else 1 / 0\n")
    given = (program, "trained")
    assert programs.call(*given, ("r", ["a"]), "export", "") == ["r", "a"]
    with pytest.raises(ConfigError, match=r"line 2 raised ZeroDivisionError.* To export, the prog"):
        programs.call(*given, ("r", []), "export", "")
    with pytest.raises(ConfigError, match=r"has no function other\(run, words\)\. Needed"):
        programs.call(program, "other", ("r", []), "export", "Needed")


def test_programs_above_come_nearest_first(tmp_path):
    (tmp_path / "a" / "scripts").mkdir(parents=True)
    for where in ("train.py", "a/scripts/train.py"):
        (tmp_path / where).write_text("")
    found = list(programs.above(tmp_path / "a" / "runs" / "x"))
    assert found[:2] == [tmp_path / "a" / "scripts" / "train.py", tmp_path / "train.py"]
