"""Files that a process has open: what is in their buffers before it is forked, and at its end."""

from __future__ import annotations

import gc
import io
import os
import stat
import sys
from collections.abc import Iterable
from typing import Any

# What is done about files left open, in this order: text goes into what packs it, whose end is
# written when it is closed, and that into buffers.
_LEFT_OPEN = (
    ("flush", "io", "TextIOWrapper"),
    ("close", "zipfile", "ZipFile"),
    ("close", "gzip", "GzipFile"),
    ("close", "bz2", "BZ2File"),
    ("close", "lzma", "LZMAFile"),
    ("flush", "io", "BufferedWriter"),
    ("flush", "io", "BufferedRandom"),
)


def write() -> None:
    """Write what is still in the buffers of files that the program has left open: a rank ends
    without the last collection, in which Python closes them. As there, an error is only said."""
    order: dict[type, int] = {}
    for place, (_, module, name) in enumerate(_LEFT_OPEN):
        if module in sys.modules:
            order[getattr(sys.modules[module], name)] = place
    held = [o for o in gc.get_objects() if type(o) in order]
    for file in sorted(held, key=lambda one: order[type(one)]):
        try:
            if not getattr(file, "closed", False):
                getattr(file, _LEFT_OPEN[order[type(file)]][0])()
        except Exception as error:
            name = getattr(file, "name", repr(file))
            sys.stderr.write(f"dtrun: {name} was left open, and not all of it written: {error}\n")


def settle() -> list[Any]:
    """Write what is in the buffers of files that are open here: a child that is forked with it
    would write it again. The files (on disk alone: a pipe may take no more)."""
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    found = [o for o in gc.get_objects() if type(o) in kinds and _is_on_disk(o)]
    flush(found)
    return found


def flush(files: Iterable[Any]) -> None:
    """Write what is in their buffers. Texts go before the bytes below them."""
    for file in sorted(files, key=lambda one: not isinstance(one, io.TextIOBase)):
        try:
            file.flush()
        except (OSError, ValueError):  # its owner's to find
            continue


def _is_on_disk(file: Any) -> bool:
    try:
        return file.writable() and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):
        return False
