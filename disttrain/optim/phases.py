"""Schedules of several phases: one after the other, side by side, on a plateau."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

from ..errors import ConfigError, ShapeError
from ..trace import warn
from .optimizer import Optimizer
from .scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, per_group, put


class SequentialLR(LRScheduler):
    """``schedulers[k]`` until ``milestones[k]``, then the next one from its start."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        _check_parts("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ConfigError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        # Each scheduler made its first step when it was made. Undo that; the first one begins.
        for group in optimizer.param_groups:
            put(group, "lr", group["initial_lr"])
        _undo_first_step(schedulers)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch."""
        self.last_epoch += 1
        k = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[k]
        if k > 0 and self._milestones[k - 1] == self.last_epoch:
            now._update_lr(0)
        else:
            now.step()
        self._last_lr = now.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """With the state of each scheduler."""
        return _nested_state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _load_nested_state(self, state_dict)


class ChainedScheduler(LRScheduler):
    """All schedulers at every step, each going on from the rates that the one before set."""

    def __init__(self, schedulers: list[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ConfigError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no "
                "scheduler"
            )
        self.optimizer = optimizer or schedulers[0].optimizer
        _check_parts("ChainedScheduler", schedulers, self.optimizer)
        self._schedulers = schedulers
        self._last_lr = self.rates()

    def step(self) -> None:  # type: ignore[override]
        """Step each scheduler."""
        for s in self._schedulers:
            s.step()
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """With the state of each scheduler."""
        return _nested_state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _load_nested_state(self, state_dict)


def _check_parts(name: str, schedulers: list[LRScheduler], optimizer: Optimizer) -> None:
    """Raise unless ``schedulers`` can be stepped together, without a metric."""
    if not schedulers:
        raise ConfigError(f"{name} expects at least one scheduler, but got no scheduler")
    for k, s in enumerate(schedulers):
        if not hasattr(s, "optimizer"):
            raise TypeError(f"{name} at index {k} should have `optimizer` as its attribute")
        if isinstance(s, ReduceLROnPlateau):
            raise ConfigError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                "kwargs to be specified when calling `step`, but got one at index "
                f"{k} in the given schedulers sequence"
            )
        if s.optimizer is not optimizer:
            raise ConfigError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(s).__name__} at index {k} has {s.optimizer}, which is different from "
                f"{type(optimizer).__name__}"
            )


def _undo_first_step(schedulers: list[LRScheduler]) -> None:
    for s in schedulers:
        if hasattr(s, "_schedulers"):
            _undo_first_step(s._schedulers)
        elif hasattr(s, "last_epoch"):
            s.last_epoch -= 1


def _nested_state(self: ChainedScheduler | SequentialLR) -> dict[str, Any]:
    state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
    return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}


def _load_nested_state(self: ChainedScheduler | SequentialLR, state_dict: dict[str, Any]) -> None:
    self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
    for s, saved in zip(self._schedulers, state_dict["_schedulers"]):
        s.load_state_dict(saved)


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not got better for more than ``patience`` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ConfigError(f"ReduceLROnPlateau: factor={factor}: Factor should be < 1.0")
        if mode not in ("min", "max"):
            raise ConfigError(f"ReduceLROnPlateau: mode {mode} is unknown! Give 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ConfigError(
                f"ReduceLROnPlateau: threshold mode {threshold_mode} is unknown! Give 'rel' or "
                "'abs'"
            )
        self.optimizer = self._checked(optimizer)
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        several = isinstance(min_lr, (list, tuple))
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != len(optimizer.param_groups):
            raise ConfigError(
                f"ReduceLROnPlateau: expected {len(optimizer.param_groups)} min_lrs, got "
                f"{len(min_lr)}"
            )
        self.default_min_lr = None if several else min_lr
        self.min_lrs = per_group("min_lr", min_lr, optimizer)
        self.last_epoch = 0
        self._last_lr = self.rates()
        self._reset()

    @property
    def mode_worse(self) -> float:
        """What every metric is better than."""
        return math.inf if self.mode == "min" else -math.inf

    @property
    def in_cooldown(self) -> bool:
        """Whether the epochs after a reduction still pass without being counted."""
        return self.cooldown_counter > 0

    def _reset(self) -> None:
        """Forget all metrics."""
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    def _is_better(self, value: float, best: float) -> bool:
        """Whether ``value`` beats ``best`` by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            bound = best * (1.0 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return value > bound if self.mode == "max" else value < bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Report the metric of an epoch."""
        value = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warn(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = epoch
        if self._is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.rates()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise ShapeError(
                    f"ReduceLROnPlateau: The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was initialized "
                    f"({len(self.min_lrs)}), usually due to a new param group being added to the "
                    "optimizer. Make the `min_lrs` field as long as the groups"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                put(group, "lr", new)
