"""A recording of one rank in one file, to be replayed on another machine: a zip archive of the
files of the recording, compressed. Nothing in it is run or unpickled here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zipfile

from ...errors import ConfigError
from .. import rows

_RANK = re.compile(r"rank_(\d+)\.data")


def ranks_in(folder: str, asked: int | None = None) -> list[int]:
    """The ranks of a recording that can be replayed; only ``asked``, where that is one of them."""
    if not os.path.isdir(folder):
        raise ConfigError(f"replay: {folder} is no folder; give that of dtrun --record")
    found = sorted(int(m[1]) for m in map(_RANK.fullmatch, os.listdir(folder)) if m)
    if asked is not None:
        if asked not in found:
            kept = ", ".join(map(str, found)) or "none"
            raise ConfigError(
                f"replay: rank {asked} was asked for; {folder} has what these ranks received: "
                f"{kept}. Record with dtrun --record DIR --record-payloads"
            )
        return [asked]
    if len(found) != 1:
        kept = ", ".join(map(str, found))
        why = f"say which by --rank: {kept}" if found else "record with --record-payloads"
        raise ConfigError(f"replay: {folder} has what {len(found)} ranks received; {why}")
    return found


def write(folder: str, rank: int, path: str) -> int:
    """Put the recording of ``rank`` into a file: its size."""
    part = f"{path}.tmp"
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name in (os.path.join(folder, rows.RECORD), *rows.paths(folder, rank)):
                file.write(name, os.path.basename(name))
        os.replace(part, path)
        return os.path.getsize(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise ConfigError(f"replay: --bundle {path} cannot be written: {error}") from None


def read(path: str, folder: str) -> None:
    """Put the files of a bundle into ``folder``."""
    try:
        with zipfile.ZipFile(path) as file:
            for name in file.namelist():
                if not re.fullmatch(r"record\.json|rank_\d+\.(bin|names|data)", name):
                    raise ConfigError(f"replay: {path}: {name!r} is no file of a recording")
                with file.open(name) as source, open(os.path.join(folder, name), "xb") as out:
                    shutil.copyfileobj(source, out)
        with open(os.path.join(folder, rows.RECORD), encoding="utf-8") as about:
            json.load(about)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"replay: {path} is no bundle of a recording: {error}") from None
