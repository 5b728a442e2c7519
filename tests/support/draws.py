"""How many of the drawn cases run: a share, evenly chosen, or all of them with ALL_DRAWS=1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")
ALL = os.environ.get("ALL_DRAWS", "") not in ("", "0")


def share(cases: Sequence[Case], one_in: int) -> Sequence[Case]:
    """One in so many of ``cases``; all of them if asked for."""
    return cases if ALL else cases[::one_in]
