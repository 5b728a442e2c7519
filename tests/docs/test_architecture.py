"""docs/architecture.md names files that are there, each question once."""

from __future__ import annotations

import re

from support.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PLACES = [ROOT / "disttrain", ROOT]
_PATH = re.compile(r"[\w./*-]+(?:\.py|/)")


def rows() -> list[list[str]]:
    table = PAGE[PAGE.index("## Where do I look for") : PAGE.index("## What they taught")]
    cells = [line.strip("| ").split(" | ") for line in table.split("\n") if line.startswith("| ")]
    return [row for row in cells if row[0] != "question"]


def is_there(name: str, folders: set[str]) -> bool:
    """From the package, from the checkout, or beside a file that the row has named before."""
    near = [place / folder for place in PLACES for folder in folders]
    return any(list(place.glob(name)) for place in [*PLACES, *near])


def test_files_are_there():
    lost = []
    for question, files in rows():
        folders: set[str] = set()
        for name in re.findall(r"`([^`]+)`", files):
            if not _PATH.fullmatch(name):
                continue
            if not is_there(name.rstrip("/"), folders):
                lost.append((question, name))
            folders.add(name.rstrip("/") if name.endswith("/") else name.rpartition("/")[0])
    assert not lost


def test_a_question_stands_once():
    questions = [row[0] for row in rows()]
    assert sorted(questions) == sorted(set(questions)) and len(questions) > 100
