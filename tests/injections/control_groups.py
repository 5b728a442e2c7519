"""Whether this process may make control groups, which limit what processes use. Needs root."""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "disttrain-matrix-"  # of the names of groups


def why_not(parent: Path, limits: tuple[str, ...], what: str) -> str:
    """What keeps this process from making groups in ``parent`` that have one of the files
    ``limits``; empty where nothing does. ``what`` such groups would do, for the message."""
    if os.geteuid():
        return "control groups need root"
    group = parent / f"{PREFIX}{os.getpid()}-try"
    try:
        group.mkdir()
    except OSError as error:
        return f"no control group can be made: {error}"
    try:
        found = any((group / limit).exists() for limit in limits)
        return "" if found else f"control groups do not {what} here"
    finally:
        group.rmdir()
