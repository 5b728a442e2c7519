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
    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        return None if self.is_ours(item.path) else True
