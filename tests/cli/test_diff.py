"""``disttrain diff``: text, JSON, exit codes."""

from __future__ import annotations

import json

import pytest

from disttrain.cli import main
from support.recordings import train

pytestmark = pytest.mark.simulated


def test_equal_runs(tmp_path, capsys):
    for name in "ab":
        train(tmp_path / name)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.startswith("no difference")


def test_runs_that_differ(tmp_path, capsys):
    train(tmp_path / "a")
    train(tmp_path / "b", p=0.5)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "module Net.drop" in told["answer"]


def test_what_is_not_there(tmp_path, capsys):
    assert main(["diff", str(tmp_path / "a")]) == 2
    assert "no recording" in capsys.readouterr().err
