"""What ``disttrain plan`` is told of a run: the model, a batch, the optimizer, the layers to split.

Knows the settings; starts no training and reads the data only for its sizes.
"""

from __future__ import annotations

from typing import Any

import disttrain as dt
from disttrain.distributed.planning import Precision, Subject, needs_of, table

from .datasets import make_task
from .models import Block, make_model
from .optimizing import make_optimizer
from .settings import Settings
from .strategies import SPLIT

F = dt.nn.functional

# The rows of a plan, by the names of the settings.
ROWS = {"ddp": "ddp", "zero": "zero1", "fsdp": "fsdp", "hsdp": "hsdp", "2d": "fsdp x tp"}


def make_subject(settings: Settings) -> Subject:
    """The run of these settings, for ``disttrain.distributed.planning``."""
    task, block_size = make_task(settings.data), settings.data.block_size
    narrow = settings.parallel.precision == "bf16"
    shards = settings.parallel.virtual_shards
    shards = 0 if settings.parallel.deterministic == "none" else shards
    split = {f"blocks.*.{name}": how for name, how in SPLIT.items()}

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
        split=split if settings.model.name == "gpt" else {},
        checkpointing=settings.parallel.recompute,
        compute=dt.bfloat16 if narrow else None,
        precision=Precision(2, 4) if narrow else Precision(),
        virtual_shards=shards,
    )


def memory_table(settings: Settings, world: int) -> str:
    """What each rank of this run needs, as text."""
    parallel = settings.parallel
    tensor = parallel.tensor if parallel.strategy == "2d" else 0
    replicas = parallel.replicas if parallel.strategy == "hsdp" else 0
    needs = needs_of(make_subject(settings), world, 1, tensor, replicas)
    return "memory per rank, planned:\n" + table(
        [n for n in needs if n.strategy == ROWS[parallel.strategy]] or needs[:1]
    )
