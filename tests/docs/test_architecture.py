"""Pages name files that are there, files.md each question once; packages say what they hold."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from support.pages import PAGES, ROOT

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


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
DOCS = ROOT / "docs"


def test_paths_of_the_picture_are_there():
    """What has a slash or the name of a file, and links."""
    said = re.findall(r"`([\w./-]+)`", ARCHITECTURE)
    paths = [name for name in said if "/" in name or name.endswith(".py")]
    links = [link for link in re.findall(r"\]\(([^)#]+)", ARCHITECTURE) if "://" not in link]
    assert [n for n in paths if not any(is_path(place / n) for place in PLACES)] == []
    assert [link for link in links if not (DOCS / link).exists()] == []
    assert len(paths) > 20


def is_path(path: Path) -> bool:
    """A file or a folder, also of a module named without its ending."""
    return path.exists() or path.with_name(f"{path.name}.py").is_file()


def test_the_picture_has_every_package():
    """The order that it draws names all that the contract orders."""
    drawn = set(re.findall(r"\w+", ARCHITECTURE.partition("```text")[2].partition("```")[0]))
    order = next(c for c in CONTRACTS if c["name"] == "The import order")
    assert {n for row in order["layers"] for n in re.findall(r"\w+", row)} - drawn == set()


def test_files_with_folders_are_there_wherever_a_page_names_them():
    """Outside of blocks of code; a path may leave out the folders that it begins with."""
    files = [
        p for top in ("disttrain", "launcher", "tests", "scripts") for p in (ROOT / top).rglob("*")
    ]
    ends = {p.parts[-n:] for p in files for n in range(2, len(p.relative_to(ROOT).parts) + 1)}
    gone = []
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/[\w.-]+\.py)`", prose)
        gone += [f"{page.name}: {name}" for name in named if tuple(name.split("/")) not in ends]
    assert gone == []


PACKAGES = [p for top in ("disttrain", "launcher") for p in (ROOT / top).rglob("__init__.py")]
_ROW = re.compile(r"^ *([a-z_0-9]+(?:(?: \| |, )[a-z_0-9]+)*) {2,}\S", re.MULTILINE)


def test_tables_of_packages_name_what_is_in_them():
    """The rows of a docstring: names of children, two spaces or more, what they are."""
    gone = []
    for path in PACKAGES:
        told = ast.get_docstring(ast.parse(path.read_text())) or ""
        children = {p.stem for p in path.parent.iterdir()}
        rows_of = (re.findall(r"\w+", row) for row in _ROW.findall(told))
        gone += [f"{path.parent.name}: {n}" for row in rows_of for n in row if n not in children]
    assert gone == []


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
