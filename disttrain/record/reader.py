"""Recordings read back: a run's streams of rows, with their texts. Nothing here needs the run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import ConfigError
from .rows import KINDS, PHASES, RECORD, ROW, VERSION, paths

_CALL = re.compile(r"call (\d+) of group (\S+)")


class Row(NamedTuple):
    """One row, with its texts. ``at``: its place in the stream; ``call``: (group, number) of a
    collective."""

    rank: int
    at: int
    kind: int
    phase: int
    step: int
    name: str
    module: str
    site: str
    shape: str
    about: str
    hash: int
    low: float
    high: float
    squares: float
    nans: int
    sketch: float
    start: int
    numel: int
    whole: int
    inputs: tuple[int, ...]

    @property
    def norm(self) -> float:
        return float(np.sqrt(self.squares))

    @property
    def dtype(self) -> str:
        return self.shape.rpartition("x ")[2].partition("[")[0]

    @property
    def call(self) -> tuple[str, int] | None:
        found = _CALL.search(self.about)
        return None if found is None else (found[2], int(found[1]))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {k: v for k, v in self._asdict().items() if k not in ("inputs", "squares")}
        told |= {"kind": KINDS[self.kind], "phase": PHASES[self.phase], "norm": self.norm}
        return told | {"hash": f"{self.hash:016x}", "inputs": [f"{h:016x}" for h in self.inputs]}


@dataclass
class Run:
    """A recorded run, or some ranks of one. ``streams``: by rank."""

    name: str
    about: dict[str, Any]
    streams: dict[int, list[Row]] = field(default_factory=dict)
    folder: str = ""

    @property
    def world(self) -> int:
        return int(self.about.get("world", 1))

    @property
    def level(self) -> str:
        return str(self.about.get("level", "ops"))


def about_of(folder: str, where: str = "") -> dict[str, Any]:
    """What is said of the run that is recorded in a folder. ``where``: as the user gave it."""
    path = os.path.join(folder, RECORD)
    try:
        with open(path, encoding="utf-8") as file:
            about: dict[str, Any] = dict(json.load(file))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{where or folder}: no recording: {path} cannot be read ({error}); record one by "
            "dtrun --record FOLDER, or with dt.record(folder)"
        ) from None
    if about.get("version") != VERSION:
        raise ConfigError(f"{path}: version {about.get('version')} given; needed is {VERSION}")
    return about


def read(where: str) -> Run:
    """The run in a folder; ``FOLDER:2`` or ``FOLDER:0,2``: these ranks of it alone."""
    folder, ranks = where, None
    if not os.path.isdir(where):
        head, colon, tail = where.rpartition(":")
        if colon and all(word.isdigit() for word in tail.split(",")):
            folder, ranks = head, [int(word) for word in tail.split(",")]
    about = about_of(folder, where)
    run = Run(where, about, folder=os.path.realpath(folder))
    for rank in range(run.world) if ranks is None else ranks:
        if os.path.exists(paths(folder, rank)[0]):
            run.streams[rank] = stream(folder, rank)
        elif ranks is not None:
            raise ConfigError(f"{where}: rank {rank} has recorded nothing into {folder}")
    if not run.streams:
        raise ConfigError(f"{where}: no rank has recorded anything into {folder}")
    return run


def stream(folder: str, rank: int) -> list[Row]:
    """The whole rows of a rank, up to the first that is torn."""
    rows, names, _ = paths(folder, rank)
    texts = texts_of(names)
    return [_row(rank, i, r, texts) for i, r in enumerate(whole_rows(rows).tolist())]


def whole_rows(path: str) -> np.ndarray:
    """The rows of a file as a table (``ROW``), which is read from it as it is needed."""
    count = os.path.getsize(path) // ROW.itemsize
    table = np.memmap(path, ROW, "r", shape=(count,)) if count else np.empty(0, ROW)
    numbers = np.arange(1, count + 1)
    whole = (table["number"] == numbers) & (table["tail"] == numbers & 0xFFFFFFFF)
    return table if whole.all() else table[: int(np.argmin(whole))]


def texts_of(path: str) -> list[str]:
    """The texts of a rank, by their numbers."""
    texts = [""]
    with open(path, "rb") as file:
        for line in file:
            try:
                texts.append(str(json.loads(line)))
            except ValueError:  # the torn end
                break
    return texts


def _row(rank: int, at: int, r: Sequence, texts: list[str]) -> Row:
    """A row of the file, whose fields are in the order of ``ROW``."""
    (_, hash, low, high, squares, nans, sketch, start, numel, whole, inputs, step, name, module,
     site, shape, about, kind, phase, num_inputs, _, _) = r  # fmt: skip
    return Row(
        rank, at, kind, phase, step, _text(texts, name), _text(texts, module), _text(texts, site),
        _text(texts, shape), _text(texts, about), hash, low, high, squares, nans, sketch, start,
        numel, whole, tuple(inputs[:num_inputs]),
    )  # fmt: skip


def _text(texts: list[str], number: int) -> str:
    return texts[number] if number < len(texts) else "?"


__all__ = ["Row", "Run", "read", "stream", "texts_of", "whole_rows"]
