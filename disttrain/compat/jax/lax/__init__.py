"""``jax.lax``: names and conventions over ``func``, ``arrays.general`` and ``ops``."""

from __future__ import annotations

import sys
from typing import Any

from ...publish import MissingName, lacking
from .names import NAMES

globals().update(NAMES)


def __getattr__(name: str) -> Any:
    raise MissingName(lacking(f"jax.lax.{name}", sys.modules[__name__]))
