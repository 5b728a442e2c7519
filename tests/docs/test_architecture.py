"""docs/files.md names files that are there, each question once; packages say what they hold."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from support.pages import ROOT

PAGE = (ROOT / "docs" / "files.md").read_text()
PLACES = [ROOT / "disttrain", ROOT]
_PATH = re.compile(r"[\w./*-]+(?:\.py|/)")


def rows() -> list[list[str]]:
    cells = [line.strip("| ").split(" | ") for line in PAGE.split("\n") if line.startswith("| ")]
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


CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
LARGE = {"disttrain.distributed", "disttrain.rpc", "disttrain.comm", "disttrain_launcher"}
ORDERS = {c["containers"][0]: c["layers"] for c in CONTRACTS
          if c.get("exhaustive") and c["containers"][0] in LARGE}  # fmt: skip


@pytest.mark.parametrize("package", sorted(LARGE))
def test_a_large_package_says_what_it_is_made_of(package):
    """Its docstring has the order of its contract."""
    folder = ROOT / package.replace("disttrain_launcher", "launcher").replace(".", "/")
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    names = [n for row in ORDERS[package] for n in re.findall(r"\w+", row)]
    folders = [n for n in names if (folder / n).is_dir()]
    tree = told[told.index("From above") :]
    places = {n: re.search(rf"^[\w| ]*\b{n}\b", tree, re.MULTILINE) for n in folders}
    assert [n for n, place in places.items() if place is None] == []
