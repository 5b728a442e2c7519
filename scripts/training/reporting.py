"""What rank 0 tells of a run: progress, JSON lines, TensorBoard. Other ranks are silent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from disttrain.metrics import EventWriter, JsonLines, Progress

from .settings import Log


class Reporter:
    """Takes numbers and puts them wherever the settings want them. ``run=None``: nowhere.

    ``done``: samples, and ``at``: (steps, epochs) that are behind; what was recorded of later ones
    will come again, and is removed."""

    def __init__(
        self, log: Log, run: Path | None, total: int, done: int, at: tuple[int, int]
    ) -> None:
        # One stream for all that is shown, so that dtrun cannot change the order of the lines.
        self.progress = Progress(total, done=done, enabled=run is not None, stream=sys.stdout)
        step, resumed = at[0], None
        if run and (step or any(run.glob("events.*"))):
            resumed = step + 1  # TensorBoard forgets what is said of this step and later ones
        if run and (run / "metrics.jsonl").exists():
            _forget(run / "metrics.jsonl", at)
        self._lines = JsonLines(run / "metrics.jsonl") if run and log.jsonl else None
        self._events = EventWriter(run, purge_step=resumed) if run and log.tensorboard else None
        if self._lines and step:
            self._lines.write({"kind": "resume", "step": step})

    def record(self, kind: str, step: int, epoch: int, values: dict[str, float]) -> None:
        """Write numbers of kind ``train`` or ``test``."""
        if self._lines:
            self._lines.write({"kind": kind, "step": step, "epoch": epoch, **values})
        if self._events:
            self._events.scalars({f"{kind}/{name}": v for name, v in values.items()}, step)

    def text(self, tag: str, text: str, step: int = 0) -> None:
        """Write a text, shown by TensorBoard as it is."""
        if self._events:
            indented = "\n".join("    " + line for line in text.splitlines())
            self._events.text(tag, indented, step)

    def close(self) -> None:
        """Remove the bar, close the files."""
        self.progress.close()
        for writer in (self._lines, self._events):
            if writer:
                writer.close()


def _forget(path: Path, at: tuple[int, int]) -> None:
    """Cut off the records of steps behind the first ``at[0]``, and of tests behind epoch
    ``at[1]``."""
    step, epoch = at
    kept = 0
    for line in path.read_bytes().splitlines(keepends=True):
        record = json.loads(line) if line.endswith(b"\n") else {"step": step + 1}  # a half line
        if record["step"] > step or (record["kind"] == "test" and record["epoch"] > epoch):
            break
        kept += len(line)
    os.truncate(path, kept)
