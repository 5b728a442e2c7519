"""What ``disttrain plan`` is told of a run: the model, a batch, the optimizer, the layers to split.

Knows the settings; starts no training and reads the data only for its sizes.
"""

from __future__ import annotations

from typing import Any

import disttrain as dt
from disttrain.distributed.planning import Subject

from .datasets import make_task
from .models import Block, make_model
from .optimizing import make_optimizer
from .settings import Settings

F = dt.nn.functional

# The layers that tensor parallelism divides, by the names of the GPT's modules.
SPLIT = {
    "blocks.*.qkv": "colwise",
    "blocks.*.out": "rowwise",
    "blocks.*.up": "colwise",
    "blocks.*.down": "rowwise",
}


def make_subject(settings: Settings) -> Subject:
    """The run of these settings, for ``disttrain.distributed.planning``."""
    task, block_size = make_task(settings.data), settings.data.block_size

    def loss(model: Any, batch: int) -> dt.Tensor:
        if task.alphabet:
            inputs = dt.zeros(batch, block_size, dtype=dt.int64, device="meta")
        else:
            inputs = dt.zeros(batch, 1, *task.image_size, device="meta")
        scores = model(inputs)
        scores = scores.reshape(-1, scores.shape[-1])
        targets = dt.zeros(scores.shape[0], dtype=dt.int64, device="meta")
        return F.cross_entropy(scores, targets)

    return Subject(
        build=lambda: make_model(settings.model, task, block_size),
        loss=loss,
        batch_size=settings.data.batch_size,
        optimizer=lambda parameters: make_optimizer(settings.optim, parameters),
        is_unit=lambda module: isinstance(module, Block),
        split=SPLIT if settings.model.name == "gpt" else {},
    )
