"""What of a data sheet's numbers a training gets: few constants with a physical meaning, fitted to
one half of the published measurements (``calibration``) and kept in ``data/constants.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Constants:
    """``values[name]``: names are ``what`` or ``what.of``, where ``of`` is a family of devices, a
    type of numbers, a stack of software or two of them. What has none of its own has that of
    "default"."""

    values: Mapping[str, float]

    def get(self, what: str, *of: str) -> float:
        """The value for all of ``of`` together, else for the first of them that has one."""
        values = self.values
        for name in (".".join((what, *of)), *(f"{what}.{each}" for each in of)):
            if name in values:
                return values[name]
        return values[f"{what}.default"] if f"{what}.default" in values else values[what]


@cache
def constants() -> Constants:
    """Those that are kept with the package."""
    table = json.loads((DATA / "constants.json").read_text())
    return Constants({name: entry["value"] for name, entry in table.items()})
