"""The environment variables that the launcher alone hears; ``disttrain.settings`` has the others.

Besides, each option can be given as ``PET_`` and its name: see ``command_line``. Nothing of the
package is imported here: options are read before numpy may be loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable: its name, what holds without it, who sets it, and what it says."""

    name: str
    default: str
    who: str
    meaning: str

    def text(self) -> str:
        """What it is set to; the default, where it is empty or unset."""
        return os.environ.get(self.name) or self.default


def environment(env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """``env``, or where none is given the variables of the process as they are now."""
    return os.environ if env is None else env


LINE_PREFIX = Variable(
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "[rank ${rank}] ",
    "you",
    "what stands before a rank's lines; knows `role_name`, `rank`, `local_rank`",
)
FORCE_COLOR = Variable(
    "FORCE_COLOR",
    "",
    "you",
    "not empty: prefixes of lines have colours off terminals, too",
)
COLUMNS = Variable("COLUMNS", "", "the system", "the width of `--help`; unset: the terminal's")

TABLE = (LINE_PREFIX, FORCE_COLOR, COLUMNS)
