"""Tests are skipped only for what the table in tests/README.md names; else the run fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "README.md"


def reasons(text: str) -> list[str]:
    """What tests may say: the words in the first column that are code."""
    rows = [row.split(" | ")[0] for row in text.splitlines() if row.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`((?:[^`]|`\w+`(?=`))+)`", row)]


class Skips:
    """A plugin of pytest's."""

    def __init__(self) -> None:
        self.known, self.unknown = reasons(TABLE.read_text(encoding="utf-8")), set[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._look(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._look(report)

    def _look(self, report: Any) -> None:
        if not report.skipped or not isinstance(report.longrepr, tuple):
            return  # a test that fails as expected has no place
        path, line, said = report.longrepr
        if not any(word in said for word in self.known):
            self.unknown.add(f"{path}:{line}: {said}")

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        if self.unknown and exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for said in sorted(self.unknown):
            terminalreporter.write_line(f"skipped for no reason that {TABLE.name} has: {said}")
