"""Several runs of the tests at once: each test runs once, and every failure is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from pathlib import Path
from support.claims import Claims

def pytest_addoption(parser):
    parser.addoption("--claims")

def pytest_configure(config):
    config.pluginmanager.register(Claims(Path(config.getoption("--claims")), config.rootpath))
"""
FILE = """
import os, time
import pytest

@pytest.fixture(scope="module")
def shared():
    yield os.getpid()
    open({ended!r}, "x").close()

@pytest.mark.parametrize("n", range(3))
def test_it(n, shared):
    time.sleep(0.02)
    with open({ran!r} + str(n), "x") as file:
        file.write(str(os.getpid()))
    assert n < {fails}
"""
PLACES = [f"{folder}/test_{folder}{n}" for folder in "abc" for n in range(4)]


@pytest.mark.parametrize("fails", [(), ("a/test_a0", "c/test_c3")], ids=["all pass", "two fail"])
def test_each_file_runs_in_one_of_them(tmp_path, fails):
    """Folders are left and entered at other places than in one run."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}/tests\n")
    notes = tmp_path / "notes"
    notes.mkdir()
    for place in PLACES:
        path, mark = tmp_path / f"{place}.py", str(notes / place.rpartition("/")[2])
        path.parent.mkdir(exist_ok=True)
        told = {"ended": f"{mark}.ended", "ran": f"{mark}.", "fails": 2 if place in fails else 3}
        path.write_text(FILE.format(**told))
    words = [sys.executable, ROOT / "scripts/lib/team.py", "2", sys.executable, "-m", "pytest"]
    done = subprocess.run(
        [*words, "-q", "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == bool(fails), done.stdout + done.stderr
    assert [f"{place}.py::test_it[2]" in done.stdout for place in PLACES] == [
        place in fails for place in PLACES
    ]
    assert len(list(notes.glob("*.ended"))) == len(PLACES)
    ran = [[(notes / f"{Path(p).name}.{n}").read_text() for n in range(3)] for p in PLACES]
    assert all(len(set(pids)) == 1 for pids in ran), "a file is in one of them"
    assert len({pids[0] for pids in ran}) == 2
