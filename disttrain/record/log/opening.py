"""The recording side of a replay: the log of a rank, from its first frame to its last.

The first says what the process is, those in between what came to it (``keeping``), which code it
has loaded and where steps begin, the last that it came to its end.
"""

from __future__ import annotations

import os
import sys

from ... import context, settings
from ...comm.group.default_group import SLOT as GROUPS
from ...errors import ConfigError
from ...rpc.calls.current import SLOT as AGENT
from ...trace import warn
from .. import rows
from .frames import LogWriter
from .keeping import Keeper, stand_aside, stand_in
from .key import key
from .surroundings import code_files, hash_of_file, process

CHECKER_SLOT = "record.checker"  # of a rank that is replayed: what its rows go to


class Keeping:
    """Keeps what others bring to the calling rank."""

    def __init__(self, folder: str, rank: int) -> None:
        self._path = rows.paths(folder, rank)[2]
        self._modules = 0
        self._hashed: set[str] = set()

    def begin(self) -> None:
        """From now on."""
        slots = context.current().slots
        world = getattr(slots.get(GROUPS), "world", None)
        if world is not None or AGENT in slots:
            raise ConfigError(
                "record: payloads=True was given after init_process_group() or init_rpc(); a "
                "replay begins at the program's start, so record before these, or by dtrun "
                "--record DIR --record-payloads"
            )
        mine = key(make=True)
        if not mine:
            warn("record: there is no place for a key, so a replay needs --trust")
        self.log = LogWriter(self._path, mine)
        launched = bool(settings.RECORD_FOLDER.text())
        self.log.put({**process(), "launched": launched})
        stand_in(Keeper(self.log))

    def end(self, num_rows: int) -> None:
        """The recording ends, with so many rows."""
        stand_aside()
        self._code()
        self.log.put({"k": "exit", "rows": num_rows})
        self.log.close()

    def stepped(self, step: int) -> None:
        """Step ``step`` begins."""
        self.log.put({"k": "step", "step": step})
        if len(sys.modules) != self._modules:
            self._code()

    def _code(self) -> None:
        """Which code was loaded since the last time."""
        self._modules = len(sys.modules)
        main = sys.modules.get("__main__")
        files = {*code_files([*sys.modules]), os.path.realpath(getattr(main, "__file__", "") or "")}
        new = sorted(files - self._hashed)
        self._hashed |= files
        if new:
            self.log.put({"k": "code", "files": {p: hash_of_file(p) for p in new if p}})


__all__ = ["CHECKER_SLOT", "Keeping"]
