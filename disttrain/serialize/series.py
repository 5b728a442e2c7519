"""Checkpoints of one folder: which there are, in order, and which of them are kept.

The file ``checkpoint`` in the folder names them, as TensorFlow's does, in its text form. Each is a
file of the folder; what is in it, ``save`` and ``load`` know.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STATE = "checkpoint"
_NAME = re.compile(r'^all_model_checkpoint_paths: "(.*)"$', re.M)


def members(value: Any, children: Any, leaf: Any) -> Iterator[tuple[str, Any]]:
    """What ``leaf`` says yes to below ``value``, each once with its path; ``children(value)``:
    pairs of a name and a part."""
    seen: set[int] = set()

    def walk(part: Any, path: str) -> Iterator[tuple[str, Any]]:
        if id(part) in seen:
            return
        seen.add(id(part))
        if leaf(part):
            yield path, part
            return
        for name, child in children(part):
            yield from walk(child, f"{path}/{name}" if path else name)

    return walk(value, "")


def listed(folder: Any, name: str = _STATE) -> list[str]:
    """The paths that the folder's file names, the last one last."""
    state = Path(folder, name)
    found = _NAME.findall(state.read_text()) if state.is_file() else []
    return [os.path.join(folder, p) for p in found]


def list_anew(folder: Any, paths: list[str]) -> None:
    """Let the folder's file name these; it is replaced in one step."""
    names = [os.path.relpath(p, folder or ".") for p in paths]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    state = Path(folder, _STATE)
    part = state.with_name(f"{_STATE}.part-{os.getpid()}")
    part.write_text("\n".join(lines) + "\n")
    part.replace(state)


class Series:
    """The checkpoints of ``folder``, of which the last ``most`` are kept (None: all), and one every
    ``hours``. ``suffix``: of their files."""

    def __init__(
        self, folder: str, most: int | None, hours: float | None = None, suffix: str = ""
    ) -> None:
        self.folder, self.paths = folder, listed(folder)
        self._most, self._hours, self._suffix = most, hours, suffix
        self._kept_at = time.time()

    def add(self, path: str, writes: bool = True) -> None:
        """``path`` has been written; ``writes``: this process keeps the folder."""
        paths = [p for p in self.paths if p != path] + [path]
        old = [] if self._most is None else paths[: -self._most]
        self.paths = paths[len(old) :]
        if writes:
            list_anew(self.folder, self.paths)
            for p in old:
                self._remove(p)

    def _remove(self, path: str) -> None:
        if self._hours is not None and time.time() - self._kept_at >= self._hours * 3600:
            self._kept_at = time.time()
            return
        Path(path + self._suffix).unlink(missing_ok=True)
