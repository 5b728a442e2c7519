"""Metrics as JSON lines: one object per line, each line whole on disk before ``write`` returns.

A line goes out in one system call, so an exception, or the end of the program, leaves whole lines
only. The kernel copies a line that lies on several pages page by page, though: who reads meanwhile
may see the first part of the last line, and SIGKILL may end the call there. So a reader leaves out
what follows the last newline, as ``read_jsonl`` does, and the next writer cuts it off. Knows
nothing of training: a record is any dict.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from ..errors import ConfigError, SerializationError
from ..outputs import write_all


class JsonLines:
    """Appends records to ``path``; a half line that a crash left at the end is cut off first.

    Numbers that JSON has no word for are written as "nan", "inf" and "-inf". Array scalars
    (anything with ``.item()``) become plain numbers.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise ConfigError(f"JsonLines: {self.path} cannot be written: {error}") from None
        _cut_half_line(self._fd)

    def write(self, record: dict[str, Any]) -> None:
        """Append ``record`` as one line."""
        text = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False)
        write_all(self._fd, text.encode() + b"\n", str(self.path))

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """The records of a file, in order. A half line at the end (a crash) is left out."""
    whole, _, _ = Path(path).read_bytes().rpartition(b"\n")
    records = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise SerializationError(f"{path}:{number}: not a JSON line: {error}") from None
    return records


def _cut_half_line(fd: int) -> None:
    size = end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - 4096)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if not isinstance(value, (str, int, float, type(None))) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
