"""The environment variables that the launcher alone hears; ``disttrain.settings`` has the others.

Besides, each option can be given as ``PET_`` and its name: see ``command_line``.
"""

from __future__ import annotations

from disttrain.settings import Setting

LINE_PREFIX = Setting(
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "[rank ${rank}] ",
    "you",
    "what stands before a rank's lines; knows `role_name`, `rank`, `local_rank`",
)
FORCE_COLOR = Setting(
    "FORCE_COLOR",
    "",
    "you",
    "not empty: prefixes of lines have colours off terminals, too",
)
COLUMNS = Setting("COLUMNS", "", "the system", "the width of `--help`; unset: the terminal's")

TABLE = (LINE_PREFIX, FORCE_COLOR, COLUMNS)
