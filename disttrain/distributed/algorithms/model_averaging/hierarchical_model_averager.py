"""Averages of models over groups of growing size, the larger the rarer (hierarchical SGD; Wang et
al., 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....comm.group.group import ProcessGroup
from ....errors import ConfigError
from ...groups.new_group import new_subgroups
from . import utils
from .averagers import ModelAverager, warn_if_needless


class HierarchicalModelAverager(ModelAverager):
    """``period_group_size_dict`` maps a period to the size of the groups of neighbouring ranks that
    average then, in growing order; the last size is that of ``process_group``. At a step of several
    periods the longest counts. Nothing is averaged in the first ``warmup_steps``."""

    def __init__(
        self,
        period_group_size_dict: Mapping[int, int] | None = None,
        warmup_steps: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(process_group)
        name = "HierarchicalModelAverager"
        if not period_group_size_dict:
            raise ConfigError(f"{name}: Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods[0] <= 0:
            raise ConfigError(
                f"{name}: The minimum period in arg ``period_group_size_dict`` must be a positive "
                f"value., not {periods[0]}"
            )
        warn_if_needless(periods[-1])
        if sizes[-1] != self.process_group.size:
            raise ConfigError(
                f"{name}: The last value in arg ``period_group_size_dict`` {sizes[-1]} must be "
                f"equal to the size of arg ``process_group`` {self.process_group.size}."
            )
        self._wait_for(warmup_steps)
        self.period_process_group_dict = {
            period: self._group(size) for period, size in period_group_size_dict.items()
        }

    def _group(self, size: int) -> ProcessGroup:
        whole = self.process_group
        return whole if size == whole.size else new_subgroups(size, group=whole)[0]

    def _find_process_group(self) -> ProcessGroup | None:
        """Who averages at this step: the group of the longest period that it completes."""
        for period in reversed(list(self.period_process_group_dict)):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Iterable[Any]) -> None:
        group = self._find_process_group() if self.step >= self.warmup_steps else None
        if group is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1


__all__ = ["HierarchicalModelAverager"]
