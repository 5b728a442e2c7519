"""Tests lie as the code does: a module has a test file of its name, or mirror.toml names others."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SMALL = 40  # lines: what is no longer than this is held by what uses it
GROUPS = tomllib.loads(Path(__file__).with_name("mirror.toml").read_text(encoding="utf-8"))["held"]


def modules() -> dict[str, Path]:
    """Every module above that length, as the table names it."""
    found = {str(p.relative_to(ROOT / "disttrain")): p for p in (ROOT / "disttrain").rglob("*.py")}
    found |= {str(p.relative_to(ROOT)): p for p in (ROOT / "launcher").rglob("*.py")}
    return {
        name: path
        for name, path in found.items()
        if not path.name.startswith("__") and len(path.read_bytes().splitlines()) > SMALL
    }


def own_test(name: str) -> Path:
    """Where the tests of that module alone lie."""
    path = TESTS / name
    return path.with_name(f"test_{path.name.lstrip('_')}")


def test_every_module_has_a_test_file_of_its_name_or_a_row():
    rows = {name for group in GROUPS for name in group["modules"]}
    without = [name for name in modules() if not own_test(name).is_file() and name not in rows]
    assert not without, "add a test file of that name, or a row to tests/house/mirror.toml"


def test_no_row_is_too_many():
    rows = Counter(name for group in GROUPS for name in group["modules"])
    assert not [name for name, times in rows.items() if times > 1]
    assert not rows.keys() - modules().keys(), "gone, or short enough to need no row"
    assert not [name for name in rows if own_test(name).is_file()], "their own test file holds them"


def test_rows_name_test_files_and_say_why():
    for group in GROUPS:
        assert group["why"] and group["modules"] == sorted(group["modules"]), group
        assert group["by"] and group["by"] == sorted(set(group["by"])), group
        gone = [name for name in group["by"] if not (TESTS / name).is_file()]
        assert not gone, "mirror.toml names test files that are not there"
