"""LRScheduler: the base of learning-rate schedules, with PyTorch's meaning of ``last_epoch``.

A schedule multiplies what the groups' ``lr`` is (``get_lr``), so that several on one optimizer
compose; ``initial_lr`` in each group is where it started. It knows no update rule.
"""

from __future__ import annotations

import warnings
from typing import Any

from ..errors import ConfigError
from .optimizer import Optimizer


class LRScheduler:
    """Base of schedules. A subclass defines ``get_lr``, the rates after ``last_epoch`` moved.

    ``last_epoch`` -1 starts anew; another value resumes after that epoch, and needs ``initial_lr``
    in every group.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: {type(optimizer).__name__} is not an Optimizer; give the "
                "optimizer whose rates it sets"
            )
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ConfigError(
                    f"{type(self).__name__}: last_epoch={last_epoch} resumes a schedule, but "
                    f"param_groups[{k}] has no 'initial_lr'; load the optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[float] = []
        self.step()

    def get_last_lr(self) -> list[float]:
        """The rates of all groups as last set by this schedule."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates of all groups at ``last_epoch``."""
        raise NotImplementedError(f"{type(self).__name__}: a schedule defines get_lr()")

    def closed_form(self) -> list[float] | None:
        """The rates at any ``last_epoch`` without what went before; None where there is no form."""
        return None

    def rates(self) -> list[float]:
        """The rates of the groups as they are."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to ``epoch``) and set the rates."""
        if self._step_count == 1 and not self.optimizer.stepped:
            warnings.warn(
                "scheduler.step() was called before optimizer.step(): the first rate of the "
                "schedule is passed over. Call optimizer.step() first",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            values = self.closed_form() or self.get_lr()
        self.set_rates(values)

    def set_rates(self, values: list[float]) -> None:
        """Write the rates into the groups."""
        for group, lr in zip(self.optimizer.param_groups, values):
            group["lr"] = lr
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        self.__dict__.update(state_dict)
