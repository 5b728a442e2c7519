"""configs/ci/github-actions.yml: that it is what GitHub takes, and asks for options that exist."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from disttrain_launcher.options.command_line import parse

FILE = Path(__file__).parents[2] / "configs" / "ci" / "github-actions.yml"


def commands():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    job = yaml.safe_load(FILE.read_text())["jobs"]["tests"]
    assert job["runs-on"] == "ubuntu-latest" and job["timeout-minutes"] == 20
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    return [shlex.split(step["run"]) for step in job["steps"] if "run" in step]


def test_its_commands(pytestconfig):
    asked = [words for words in commands() if words[0] in ("dtrun", "pytest")]
    assert [words[0] for words in asked] == ["pytest", "pytest", "dtrun", "dtrun"]
    for words in asked:
        if words[0] == "dtrun":
            options = parse(words[1:])
            assert options.simulated is not None and options.nproc_per_node in (4, 16)
            assert options.program == ("train.py",)
    known = {name for option in pytestconfig._parser._anonymous.options for name in option.names()}
    for group in pytestconfig._parser._groups:
        known |= {name for option in group.options for name in option.names()}
    flags = {word for words in asked[:2] for word in words if word.startswith("--")}
    assert flags == {"--timeout", "--simulate-ranks", "--ranks-seed"} and flags <= known
