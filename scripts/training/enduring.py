"""Training that goes on in memory when ranks are lost, and lets in those that take their places.

    dtrun --nproc-per-node 4 --replace-ranks --max-restarts 100 scripts/train.py --config ...

Every step is committed in memory on every rank (``disttrain.distributed.elastic``). For runs under
``ddp``, where every rank has everything; others are restarted from their checkpoints. While a rank
is missing, the others have its samples: a step is of the same ones as before.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import disttrain as dt
from disttrain.distributed import elastic

from .loop import Result, Trainer
from .settings import Settings

_LEAST = "DISTTRAIN_MIN_RANKS"  # with fewer ranks the launcher ends the job


def outlives(settings: Settings) -> bool:
    """Will the launcher let ranks be missing, and can this run go on without them?"""
    alike = settings.parallel.strategy == "ddp" and settings.parallel.deterministic == "none"
    least, ranks = os.environ.get(_LEAST, ""), os.environ.get("WORLD_SIZE", "")
    return alike and least.isdigit() and ranks.isdigit() and int(least) < int(ranks)


class _Place:
    """How far a trainer is, for ``elastic.State``."""

    _NAMES = ("epoch", "step", "train_loss", "test_accuracy")

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.run = ""

    def state_dict(self) -> dict[str, Any]:
        told = {name: getattr(self.trainer, name) for name in self._NAMES}
        return {**told, "whole": self.trainer.whole.tolist(), "run": self.run}

    def load_state_dict(self, told: dict[str, Any]) -> None:
        for name in self._NAMES:
            setattr(self.trainer, name, told[name])
        self.trainer.whole, self.run = np.array(told["whole"]), told["run"]


def fit(settings: Settings, resume: Path | None) -> Result:
    """Train with whoever is there, until all is done; makes the default group."""
    trainer = Trainer(settings, resume)
    place = _Place(trainer)
    state = elastic.State(
        model=trainer.model,
        optimizer=trainer.optimizer,
        scheduler=trainer.scheduler,
        place=place,
    )

    def commit() -> bool:
        state.commit()
        return state.ending

    @elastic.run
    def train(state: elastic.State) -> Result:
        trainer.take_part()
        told = [place.run or str(trainer.open_run() or "")]
        dt.distributed.broadcast_object_list(told)
        place.run = told[0]
        trainer.run = Path(place.run) if trainer.rank == 0 else None
        if trainer.done:
            taken = trainer.done * trainer.feed.batch_size
            trainer.feed.sampler.load_state_dict({"epoch": trainer.epoch, "taken": taken})
        return trainer.fit()

    trainer.commit = commit
    return train(state)
