"""Where runs and their checkpoints lie, and how a checkpoint gets there in one piece.

    <log.dir>/0001/config.toml  metrics.jsonl  events.out.tfevents...  epoch_0020.safetensors

``dt.save`` gives a file its name once all of it is on the disk: whatever happens, the newest
``epoch_*`` file is whole. Knows nothing of what a checkpoint holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import disttrain as dt
from disttrain.errors import ConfigError

_SUFFIX = ".safetensors"


def new_run(folder: Path) -> Path:
    """Make and return the next numbered folder in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.name) for p in _runs(folder)), default=0)
    while True:
        run = folder / f"{number:04d}"
        try:
            run.mkdir()
        except FileExistsError:  # another job was faster
            number += 1
        else:
            return run


def find(where: Path) -> Path:
    """The newest checkpoint of ``where``: a checkpoint, the folder of a run, or one of runs."""
    if where.is_file():
        return where
    for run in [where, *sorted(_runs(where), reverse=True)]:
        found = _checkpoints(run)
        if found:
            return found[-1]
    raise ConfigError(
        f"--resume: there is no checkpoint (epoch_*{_SUFFIX}) in {where} nor in its numbered "
        "folders; name the folder of a run, or start without --resume"
    )


def save(run: Path, epoch: int, state: dict[str, Any], keep: int) -> Path:
    """Write ``state`` as the checkpoint of ``epoch``, then delete all but the newest ``keep``."""
    final = run / f"epoch_{epoch:04d}{_SUFFIX}"
    try:
        dt.save(state, final)
    except OSError as error:
        raise OSError(
            f"checkpoint: {final} could not be written: {error}. The earlier checkpoints are whole."
        ) from error
    for old in _checkpoints(run)[:-keep]:
        old.unlink()
    return final


def _runs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in folder.iterdir() if p.is_dir() and p.name.isdigit()]


def _checkpoints(run: Path) -> list[Path]:
    return sorted(run.glob(f"epoch_*{_SUFFIX}"))
