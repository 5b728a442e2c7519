"""The runs below a directory: folders with metrics, a launcher's report or black boxes.

Reads files as they grow; writes nothing, follows no links out of the directory.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..watch import summary

METRICS, REPORT = "metrics.jsonl", "report.json"
_DEEPEST = 4  # folders below the directory that are looked into
_MOST_RUNS = 500
_MOST_BYTES = 256 << 20  # of one file of metrics, from its end
_REPORT_BYTES = 8 << 20
_FRESH = 10.0  # seconds since the last write for which a run counts as running


@dataclass(frozen=True)
class Run:
    """One folder. ``name``: its path below the directory ("." : the directory itself)."""

    name: str
    path: Path
    changed: float  # seconds of the wall clock
    has_metrics: bool
    has_report: bool
    boxes: tuple[str, ...]

    @property
    def is_fresh(self) -> bool:
        return time.time() - self.changed < _FRESH

    def about(self) -> dict[str, Any]:
        """For the list of runs."""
        return {
            "name": self.name, "changed": self.changed, "fresh": self.is_fresh,
            "metrics": self.has_metrics, "report": self.has_report, "ranks": bool(self.boxes),
        }  # fmt: skip


def find_runs(root: str | Path) -> list[Run]:
    """The runs below ``root``, the latest first. Raises ``ConfigError`` for no directory."""
    root = Path(root)
    if not root.is_dir():
        raise ConfigError(f"{root}: no such directory; give the one where runs are kept")
    found = []
    for folder, folders, files in os.walk(root):
        path = Path(folder)
        if len(path.relative_to(root).parts) >= _DEEPEST:
            folders.clear()
        run = _run(root, path, files)
        if run is not None:
            found.append(run)
        folders[:] = sorted(f for f in folders if not f.startswith(("attempt_", "node_", ".")))
    found.sort(key=lambda run: -run.changed)
    return found[:_MOST_RUNS]


def _run(root: Path, path: Path, files: list[str]) -> Run | None:
    try:
        boxes = tuple(summary.find(str(path)))
    except (ConfigError, OSError):
        boxes = ()
    known = [name for name in (METRICS, REPORT) if name in files and _is_plain(path / name)]
    if not known and not boxes:
        return None
    times = [_changed(path / name) for name in known] + [_changed(Path(box)) for box in boxes]
    name = shown(path.relative_to(root))
    return Run(name, path, max(times), METRICS in known, REPORT in known, boxes)


def shown(path: Path) -> str:
    """A path as text that any browser takes, also where it is none in UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_records(run: Run, at: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The records written after byte ``at``, and where they end. From the beginning where the file
    is shorter than that (somebody has begun it anew); a half line at the end is left for later."""
    if not run.has_metrics:
        return [], 0
    try:
        with open(run.path / METRICS, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = 0 if at > size else at
            start = max(start, size - _MOST_BYTES)
            file.seek(start)
            data = file.read(size - start)
    except OSError:
        return [], at
    whole, newline, _ = data.rpartition(b"\n")
    records = []
    for line in whole.split(b"\n") if newline else ():
        try:
            record = json.loads(line, parse_constant=str.lower)  # as JsonLines spells them
        except (ValueError, RecursionError):
            continue  # not ours; the next lines may be
        if isinstance(record, dict):
            records.append(record)
    return records, start + len(whole) + len(newline)


def read_report(run: Run) -> dict[str, Any] | None:
    """The launcher's report, where there is one that can be read."""
    path = run.path / REPORT
    if not run.has_report or _size(path) > _REPORT_BYTES:
        return None
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, allow_nan=False)  # a browser knows no others
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
