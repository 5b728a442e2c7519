"""The files of a recording: rows of fixed size, and the texts that they name.

One folder per run: ``record.json`` says what ran; ``rank_R.bin`` has the rows of a rank, and
``rank_R.names`` the texts that these name by number, one JSON string a line, the first one number
1; ``rank_R.data`` has the bytes that it received, where these are kept. All are only added to: of a
file whose end is torn, the whole rows count. Nothing is unpickled. Knows no tensors.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import struct
import threading
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from ..trace import warn

VERSION = 2
RECORD = "record.json"
LEVELS = ("collectives", "modules", "ops")
# What a row is of; the names are shown, and stand in JSON.
KINDS = (
    *("operation", "module", "gradient", "node", "collective", "received", "grad", "parameter"),
    *("settings", "random", "data", "state"),
)
(OPERATION, MODULE, GRADIENT, NODE, COLLECTIVE, RECEIVED, GRAD, PARAMETER, SETTINGS, RANDOM, DATA,
 STATE) = range(len(KINDS))  # fmt: skip
PHASES = ("forward", "backward", "optimizer")
FORWARD, BACKWARD, OPTIMIZER = range(len(PHASES))
NUM_INPUTS = 4

# number: of the row in its file, 1 for the first; also at its end, where it is whole
# hash, low, high, squares, nans, sketch: the digest of the result
# start, numel, whole: the place of its first element in the whole, its elements, those of the whole
# (0: it is the whole); inputs: hashes of what it was made from
ROW = np.dtype([
    ("number", "u8"), ("hash", "u8"), ("low", "f8"), ("high", "f8"), ("squares", "f8"),
    ("nans", "i8"), ("sketch", "f8"), ("start", "i8"), ("numel", "i8"), ("whole", "i8"),
    ("inputs", "u8", (NUM_INPUTS,)), ("step", "i4"), ("name", "u4"),
    ("module", "u4"), ("site", "u4"), ("shape", "u4"), ("about", "u4"), ("kind", "u1"),
    ("phase", "u1"), ("num_inputs", "u1"), ("spare", "u1"), ("tail", "u4"),
])  # fmt: skip
PACK = struct.Struct("<QQdddqdqqq4QiIIIIIBBBBI")
assert PACK.size == ROW.itemsize
_FLUSH_AT = 64  # rows
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Measure(NamedTuple):
    """What is kept of a value. ``whole``: elements of what it is a part of, 0 where of none."""

    hash: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    squares: float = 0.0
    nans: int = 0
    sketch: float = 0.0
    start: int = 0
    numel: int = 0
    whole: int = 0


NOTHING = Measure()


def paths(folder: str, rank: int) -> tuple[str, str, str]:
    """The files of a rank: rows, names, data."""
    stem = os.path.join(folder, f"rank_{rank}")
    return f"{stem}.bin", f"{stem}.names", f"{stem}.data"


def write_about(folder: str, about: dict[str, Any]) -> None:
    """Write ``record.json``, whole or not at all."""
    path = os.path.join(folder, RECORD)
    part = f"{path}.{os.getpid()}.{threading.get_ident()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **about}, file, indent=1)
    os.replace(part, path)


_FILE = re.compile(r"rank_(\d+)\.(bin|names|data)")


def clear(folder: str, rank: int, world: int, ranks: Collection[int] | None) -> None:
    """Remove what an earlier run has left in ``folder``: what ``rank`` had received, and the files
    of ranks that this run does not record."""
    for name in os.listdir(folder):
        found = _FILE.fullmatch(name)
        if found is None:
            continue
        whose = int(found[1])
        gone = whose >= world or (ranks is not None and whose not in ranks)
        if gone or (whose == rank and found[2] == "data"):
            with contextlib.suppress(FileNotFoundError):  # another rank was faster
                os.unlink(os.path.join(folder, name))


class Writer:
    """Adds rows to the files of one rank. A disk that is full ends the recording, not the run."""

    def __init__(self, folder: str, rank: int) -> None:
        os.makedirs(folder, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        rows, names, _ = paths(folder, rank)
        self._rows, self._names = os.open(rows, flags, 0o644), os.open(names, flags, 0o644)
        self.folder, self._pid = folder, os.getpid()
        self._known: dict[str, int] = {"": 0}
        self._new_rows, self._new_names = bytearray(), bytearray()
        self._lock, self.open, self.count, self._last = threading.RLock(), True, 0, 0.0

    def text(self, text: str) -> int:
        """The number of a text."""
        number = self._known.get(text)
        if number is None:
            with self._lock:
                number = self._known.setdefault(text, len(self._known))
                self._new_names += json.dumps(text).encode() + b"\n"
        return number

    def put(
        self, kind: int, phase: int, step: int, texts: tuple[int, int, int, int, int],
        found: Measure = NOTHING, inputs: tuple[int, ...] = (),
    ) -> int:  # fmt: skip
        """Add a row: its number. ``texts``: the numbers of name, module, site, shape and about."""
        n = len(inputs)
        if n != NUM_INPUTS:
            inputs = (*inputs, 0, 0, 0, 0)[:NUM_INPUTS]
        with self._lock:
            self.count = number = self.count + 1
            self._new_rows += PACK.pack(
                number, *found, *inputs, step, *texts,
                kind, phase, min(n, NUM_INPUTS), 0, number & 0xFFFFFFFF,
            )  # fmt: skip
            if len(self._new_rows) >= _FLUSH_AT * PACK.size:
                self.flush()
        return number

    def flush(self) -> None:
        """Write what is waiting, texts first, so that no row names what is not there."""
        with self._lock:
            names, self._new_names = self._new_names, bytearray()
            rows, self._new_rows = self._new_rows, bytearray()
            if not self.open or os.getpid() != self._pid:  # a fork of the rank writes nothing
                return
            self._write(self._names, names)
            self._write(self._rows, rows)

    def flush_soon(self) -> None:
        """As ``flush``, where that was not done within the last millisecond."""
        now = time.monotonic()
        if now - self._last > 1e-3:
            self._last = now
            self.flush()

    def _write(self, fd: int, data: bytes | bytearray) -> None:
        view = memoryview(data)
        try:
            while view and self.open:
                view = view[os.write(fd, view) :]
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self.open = False
            warn(f"record: {self.folder}: not all is recorded: {error.strerror}")

    def close(self) -> None:
        """Write what is waiting, and end."""
        self.flush()
        if self.open and os.getpid() == self._pid:
            for fd in (self._rows, self._names):
                os.close(fd)
        self.open = False
