"""Packages of disttrain that are loaded for ranks, by name: once, before ranks are forked.

What runs jobs knows no tensors and gets these names with its plan. This is the one place of the
launcher that says them, since whoever starts a program knows what it will need.
"""

from __future__ import annotations

DISTRIBUTED = "disttrain.distributed"
TORCH = "disttrain.compat.torch"  # the face of ``--as-torch``
# What nearly every rank uses.
FIRST = (
    "disttrain.comm.transports.shm.engine",
    "disttrain.data",
    DISTRIBUTED,
    "disttrain.distributed.ddp",
    "disttrain.optim",
)
# What ranks that begin again are likely to use: loaded for all of them, when there may be such.
AGAIN = (
    "disttrain.distributed.checkpoint",
    "disttrain.distributed.elastic",
    "disttrain.distributed.fsdp",
    "disttrain.distributed.planning",
    "disttrain.metrics",
)


def of(max_restarts: int) -> tuple[str, ...]:
    """The names for ranks that may be started anew so many times."""
    return (*FIRST, *(AGAIN if max_restarts else ()))
