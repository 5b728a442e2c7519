"""A test that is skipped for a reason which the table of tests/README.md lacks is told of."""

from __future__ import annotations

from types import SimpleNamespace

from support.skips import Skips, reasons


def skipped(said: str) -> SimpleNamespace:
    return SimpleNamespace(skipped=True, longrepr=("tests/test_x.py", 3, f"Skipped: {said}"))


def test_the_table_is_read():
    rows = "| it says | it needs |\n|---|---|\n| `a b`, `extra `c`` | x | `y` |\n"
    assert reasons(rows) == ["a b", "extra `c`"]


def test_reasons_that_the_table_lacks_fail_the_run():
    skips, session = Skips(), SimpleNamespace(exitstatus=0)
    skips.pytest_runtest_logreport(skipped("no GPU is visible here (none)"))
    skips.pytest_runtest_logreport(SimpleNamespace(skipped=False, longrepr=None))
    skips.pytest_sessionfinish(session, 0)
    assert session.exitstatus == 0
    skips.pytest_collectreport(skipped("did not feel like it"))
    skips.pytest_sessionfinish(session, 0)
    assert session.exitstatus == 1 and "did not feel" in min(skips.unknown)
