"""The recipes of CONTRIBUTING.md are followed word for word, on a copy of the repository."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import ROOT, Block, blocks

PAGE = ROOT / "CONTRIBUTING.md"
TASKS = "primitive optimizer scheduler layer hook transport flag rendezvous storage fault".split()
COPIED = "disttrain launcher tests scripts configs pyproject.toml README.md".split()


def recipes() -> Iterator[tuple[Block, Block]]:
    """Each change with its command."""
    found = [block for block in blocks(PAGE) if "not run" not in block.said]
    assert [block.language for block in found] == ["diff", "bash"] * len(TASKS)
    return zip(found[::2], found[1::2], strict=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The files that changes and tests are about."""
    folder = tmp_path_factory.mktemp("copy") / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder)
    (folder / "disttrain_launcher").symlink_to("launcher")
    return folder


def run(words: list[str], folder: Path, given: str = "") -> None:
    done = subprocess.run(
        words, cwd=folder, input=given, text=True, timeout=100, check=False,
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-4000:]}"


@pytest.mark.timeout(150)
@pytest.mark.skipif(shutil.which("patch") is None, reason="patch(1) is not installed")
@pytest.mark.parametrize("task", TASKS)
def test_recipe(task, copy):
    change, command = dict(zip(TASKS, recipes(), strict=True))[task]
    verb, *words = shlex.split(command.text)
    assert verb == "scripts/test"
    run(["patch", "-p1", "--no-backup-if-mismatch"], copy, change.text)
    try:
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], copy)
    finally:
        run(["patch", "-p1", "-R", "--no-backup-if-mismatch"], copy, change.text)
