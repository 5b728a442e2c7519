"""What ``disttrain export`` is told of a run: its model, an example of inputs, which sizes change.

A run keeps in ``model.json`` what its model was made for, so that neither the data nor the same
version of them are needed to make it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import disttrain as dt
from disttrain.distributed.checkpoint import Trained
from disttrain.errors import ConfigError

from . import gpt2
from .datasets import Task, make_task
from .models import make_model
from .settings import Settings

NOTE = "model.json"
PROGRAM = Path(__file__).resolve().parents[1] / "train.py"


def note(run: Path, task: Task) -> None:
    """Write it, if it is not there."""
    told = {
        "program": str(PROGRAM),
        "num_classes": task.num_classes,
        "image_size": list(task.image_size),
        "alphabet": task.alphabet,
    }
    if not (run / NOTE).exists():
        (run / NOTE).write_text(json.dumps(told, indent=1) + "\n")


def _task(run: Path, settings: Settings) -> Task:
    """The task of the run, without its data."""
    path = run / NOTE
    if not path.exists():  # a run of an earlier version
        return make_task(settings.data)
    try:
        told = json.loads(path.read_text())
        height, width = told["image_size"]
        return Task(None, None, int(told["num_classes"]), (int(height), int(width)),
                    str(told["alphabet"]))  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: {type(error).__name__}: {error}. It is damaged") from None


def make_trained(run: Path, settings: Settings) -> Trained:
    """The model of the folder ``run``, which was trained with these settings."""
    task, block_size = _task(run, settings), settings.data.block_size

    def build() -> Any:
        return make_model(settings.model, task, block_size)

    if not task.alphabet:
        return Trained(build, (dt.zeros(2, 1, *task.image_size),), dynamic={0: {0: "batch"}})
    length = dt.Dim("length", min=1, max=block_size)
    return Trained(
        build,
        (dt.zeros(2, min(8, block_size), dtype=dt.int64),),
        dynamic={0: {0: "batch", 1: length if block_size > 1 else None}},
        pretrained=lambda model: gpt2.to_pretrained(model, settings.model),
        vocabulary=task.alphabet,
    )
