"""The ten bugs of docs/debugging.md: ``diff`` says of each what the page says, at that line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, Block, blocks

pytestmark = pytest.mark.timeout(150)
PAGE = ROOT / "docs" / "debugging.md"
CONSOLES = [b for b in blocks(PAGE) if b.language == "console"]


def run(folder: Path, words: list[str], fails: bool) -> str:
    """What a command of the page says; its ranks are simulated."""
    module = {"dtrun": "disttrain_launcher", "disttrain": "disttrain.cli"}[words[0]]
    rest = ["--simulate" if word == "--nproc-per-node" else word for word in words[1:]]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "DISTTRAIN"))}
    env |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *rest], cwd=folder, env=env, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    if "diff" in words:
        assert done.returncode == int("no difference" not in done.stdout), done.stderr
    else:
        assert bool(done.returncode) == fails, done.stderr
    return done.stdout


def check(folder: Path, console: Block) -> None:
    """Each command of a console says, from its first line on, what stands below it."""
    said: list[str] = []
    for line in console.text.splitlines():
        if line.startswith("$ "):
            command, fails, _ = line[2:].partition(" || ")
            said = run(folder, command.split(), bool(fails)).splitlines()
        else:
            assert said.pop(0) == line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the program, and the recordings that are right."""
    path = tmp_path_factory.mktemp("bugs")
    [program] = [b for b in blocks(PAGE) if b.file == "diverge.py"]
    (path / "diverge.py").write_text(program.text)
    check(path, CONSOLES[0])
    return path


def test_there_are_ten():
    assert len(CONSOLES) == 11


@pytest.mark.parametrize("number", range(1, 11))
def test_the_bug_is_found_at_its_place(folder, number):
    check(folder, CONSOLES[number])
