"""What a user wants of a replay, and the log that it is of: what the command needs, which only
starts the process of the replay."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from ...errors import ConfigError, SerializationError
from .. import rows
from ..log.frames import FORMAT, Log
from ..log.key import key


@dataclass(frozen=True)
class Options:
    """What the user wants. ``folder``: of the recording; ``program``: the file that is run in the
    place of the recorded one; ``cwd``: the folder to run in."""

    folder: str
    rank: int
    until: str = ""
    debug: bool = False
    trust: bool = False
    strict: bool = False
    program: str = ""
    cwd: str = ""


def opened(options: Options) -> Log:
    """The log of the rank. Raises ``ConfigError`` where there is none, or where it is not this
    user's."""
    path = rows.paths(options.folder, options.rank)[2]
    if not os.path.exists(path):
        raise ConfigError(
            f"replay: {options.folder} has nothing that rank {options.rank} received; record with "
            f"dtrun --record DIR --record-payloads (--record-ranks {options.rank})"
        )
    log = Log(path, key(), not options.trust)
    if not log.frames or log.frames[0].meta.get("k") != "process":
        raise ConfigError(f"replay: {path} is no log of a rank, or ends before its first frame")
    if log.frames[0].meta.get("format") != FORMAT:
        raise ConfigError(f"replay: {path} was written by another version of disttrain")
    try:
        log.check(log.frames[0])
    except SerializationError as error:
        raise ConfigError(
            f"replay: {error}. A replay runs the program, with the arguments and the pickled "
            "objects that the recording names: give --trust only where you know who made it"
        ) from None
    return log


def as_words(options: Options) -> list[str]:
    """The command line of such a process, after Python's own words."""
    return ["-m", __package__ or "", json.dumps(asdict(options))]


__all__ = ["Options", "as_words", "opened"]
