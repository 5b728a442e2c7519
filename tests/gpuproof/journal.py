"""What a part writes while it runs: one line of JSON for each thing that is known, at once.

A line has "kind": "begin" (a case begins: who crashes was in the last one), "check" (a claim, and
whether it held), "skip" (a case that cannot run here, and why), "number" (a measurement), "note",
"end". Who reads it needs no process that ended well.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Skip(Exception):
    """A case cannot run here; the text says why."""


class Stuck(Exception):
    """The device answers nothing any more in this process: go on in a fresh one."""


class Journal:
    """Appends lines to ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def line(self, kind: str, **more: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **more}, default=str) + "\n")

    def number(self, name: str, value: float, unit: str, **more: Any) -> None:
        """A measurement; ``more`` may have "beside" (the same of PyTorch) and "bar" (the least or
        greatest ratio to it)."""
        self.line("number", name=name, value=value, unit=unit, **more)

    def note(self, text: str) -> None:
        self.line("note", text=text)


@dataclass
class Job:
    """What a part is given. ``after``: cases that an earlier process has begun; ``shard`` of
    ``shards``: which of the cases are this process'."""

    journal: Journal
    platform: str = "cuda"
    after: frozenset[str] = frozenset()
    shard: int = 0
    shards: int = 1
    healthy: Callable[[], None] = lambda: None  # raises where the device is stuck
    _seen: int = field(default=0)

    @property
    def real(self) -> bool:
        """Whether there is a device, and times mean something."""
        return self.platform == "cuda"

    def case(self, name: str, fn: Callable[[], Any], mine: bool = False) -> None:
        """Run one case; what it raises is its failure. A text that it returns is told. ``mine``:
        every shard runs it."""
        self._seen += 1
        if name in self.after or not (mine or self._seen % self.shards == self.shard):
            return
        self.journal.line("begin", name=name)
        start = time.perf_counter()
        try:
            said = fn()
        except Skip as skip:
            self.journal.line("skip", name=name, why=str(skip))
            return
        except Exception as error:
            self.journal.line(
                "check", name=name, ok=False, detail=one_line(error), trace=traceback.format_exc()
            )
            self._look(name)
            return
        seconds = time.perf_counter() - start
        detail = said if isinstance(said, str) else ""
        self.journal.line("check", name=name, ok=True, detail=detail, seconds=round(seconds, 3))

    def _look(self, name: str) -> None:
        try:
            self.healthy()
        except Exception as error:
            raise Stuck(f"after {name}: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = next((line.strip() for line in lines if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:400]


@dataclass
class Told:
    """A part's lines, read: what held, what did not, what could not run."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    skips: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    running: str | None = None  # the case that had begun last and did not end
    ended: bool = False

    @property
    def failures(self) -> list[dict[str, Any]]:
        return [check for check in self.checks if not check["ok"]]


def read(path: Path) -> Told:
    """The lines of a journal; a last one that was cut short is left out."""
    told = Told()
    for line in _lines(path):
        kind = line.pop("kind")
        if kind == "begin":
            told.running = line["name"]
        elif kind == "check":
            told.checks.append(line)
            told.running = None
        elif kind == "skip":
            told.skips.append(line)
            told.running = None
        elif kind == "number":
            told.numbers.append(line)
        elif kind == "note":
            told.notes.append(line["text"])
        elif kind == "end":
            told.ended = True
    return told


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue


def number_text(value: float) -> str:
    """Three digits that count."""
    if not math.isfinite(value) or value == 0:
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
