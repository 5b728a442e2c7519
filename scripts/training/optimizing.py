"""The optimizer that the settings name, and how its learning rate goes."""

from __future__ import annotations

import math
from typing import Any

import disttrain as dt

from .settings import Optim, Schedule


def learning_rate_factor(schedule: Schedule, step: int, num_steps: int, per_epoch: int) -> float:
    """What ``optim.lr`` is multiplied by at ``step`` of ``num_steps``."""
    warm = round(schedule.warmup * num_steps)
    if step < warm:
        return (step + 1) / (warm + 1)
    if schedule.name == "constant":
        return 1.0
    if schedule.name == "step":
        return schedule.gamma ** (step // (schedule.step_epochs * per_epoch))
    part = min((step - warm) / max(num_steps - warm, 1), 1.0)
    return schedule.floor + (1 - schedule.floor) * 0.5 * (1 + math.cos(math.pi * part))


def optimizer_of(optim: Optim) -> tuple[type, dict[str, Any]]:
    """The class of the optimizer that the settings name, and its arguments."""
    common = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    if optim.name == "sgd":
        return dt.optim.SGD, {"momentum": optim.momentum, **common}
    kind = dt.optim.AdamW if optim.name == "adamw" else dt.optim.Adam
    return kind, {"betas": optim.betas, **common}


def make_optimizer(optim: Optim, parameters: Any) -> dt.optim.Optimizer:
    """The optimizer that the settings name."""
    kind, settings = optimizer_of(optim)
    return kind(parameters, **settings)
