"""``torch.utils.tensorboard``: what a program writes for TensorBoard."""

from __future__ import annotations

import disttrain as dt

from ..publish import Shim


def tensorboard() -> Shim:
    """``torch.utils.tensorboard``, loaded when it is first asked for a name."""
    return Shim("torch.utils.tensorboard").later(
        lambda shim: shim.give(
            SummaryWriter=dt.metrics.SummaryWriter,
            FileWriter=dt.metrics.FileWriter,
            RecordWriter=dt.metrics.RecordWriter,
        )
    )
