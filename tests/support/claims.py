"""Several runs of the tests at once, each file in one of them (scripts/lib/team.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


class Claims:
    """A plugin of pytest's: of each file that others have claimed in ``folder``, no test is run."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self.files: dict[Path, bool] = {}

    def is_ours(self, path: Path) -> bool:
        if path not in self.files:
            name = str(path.relative_to(self.root)).replace("/", " ")
            try:
                (self.folder / name).touch(exist_ok=False)
            except FileExistsError:
                self.files[path] = False
            else:
                self.files[path] = True
        return self.files[path]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        """What is torn down after a test depends on the one that comes next here."""
        if not self.is_ours(item.path):
            return True
        if nextitem is None or self.is_ours(nextitem.path):
            return None
        item.ihook.pytest_runtest_protocol(item=item, nextitem=self._after(nextitem))
        return True

    def _after(self, item: Any) -> Any:
        """The first of ours after ``item``, if any."""
        items = item.session.items
        rest = items[items.index(item) :]
        return next((other for other in rest if self.is_ours(other.path)), None)
