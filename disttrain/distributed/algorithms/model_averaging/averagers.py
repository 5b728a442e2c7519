"""When models are averaged: every so many steps, after a warm-up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ....comm.group.group import ProcessGroup
from ....errors import ConfigError
from ....trace import warn
from ...groups.state import group_or_default
from . import utils

_NEEDLESS = (
    "When {what} is 1, no need to use model averaging because the communication cost of "
    "all-reducing parameters will be no less than the cost of all-reducing gradients by "
    "DistributedDataParallel in the backward pass. Therefore, only DistributedDataParallel should "
    "be used for this case."
)


class ModelAverager(ABC):
    """Counts ``step`` and averages over ``process_group`` (None: all ranks)."""

    def __init__(self, process_group: ProcessGroup | None = None) -> None:
        self.process_group = group_or_default(process_group)
        self.step = 0
        self.warmup_steps = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """Called after every optimizer step, with a model's parameters or an optimizer's
        groups."""

    def _wait_for(self, warmup_steps: int) -> None:
        if warmup_steps < 0:
            raise ConfigError(
                f"{type(self).__name__}: Arg ``warmup_steps`` must be a non-negative number., not "
                f"{warmup_steps}"
            )
        self.warmup_steps = warmup_steps


class PeriodicModelAverager(ModelAverager):
    """Averages every ``period`` steps, beginning with step ``warmup_steps`` (counted from 0)."""

    def __init__(
        self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None
    ) -> None:
        super().__init__(process_group)
        self._wait_for(warmup_steps)
        if period < 1:
            raise ConfigError(
                f"PeriodicModelAverager: Arg ``period`` must be a positive value., not {period}"
            )
        if period == 1:
            warn(_NEEDLESS.format(what="period"))
        self.period = period

    def average_parameters(self, params: Iterable[Any]) -> None:
        done = self.step - self.warmup_steps
        if done >= 0 and done % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1


def warn_if_needless(period: int) -> None:
    """Say that an average at every step saves nothing."""
    if period == 1:
        text = _NEEDLESS.format(what="the maximum period in arg ``period_group_size_dict``")
        warn(text)


__all__ = ["ModelAverager", "PeriodicModelAverager"]
