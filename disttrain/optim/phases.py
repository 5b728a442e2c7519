"""Schedules of several phases: one after the other, side by side, the one cycle, on a plateau."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

from ..errors import ConfigError
from .optimizer import Optimizer
from .scheduler import LRScheduler


class SequentialLR(LRScheduler):
    """``schedulers[k]`` until ``milestones[k]``, then the next one from its start."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        _check_same_optimizer("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ConfigError(
                f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} "
                f"milestones between them, {len(milestones)} were given"
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        # Each scheduler made its first step when it was made. Undo that; the first one begins.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for s in schedulers:
            s.last_epoch -= 1
            s._step_count = 0
        schedulers[0].step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch."""
        if epoch is not None:
            raise ConfigError("SequentialLR.step: it goes on by one epoch; give no epoch")
        self.last_epoch += 1
        k = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[k]
        if k > 0 and self._milestones[k - 1] == self.last_epoch:
            now.step(0)
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
            raise ConfigError("ChainedScheduler: no schedulers were given; at least one is needed")
        self.optimizer = optimizer or schedulers[0].optimizer
        _check_same_optimizer("ChainedScheduler", schedulers, self.optimizer)
        self._schedulers = schedulers
        self._last_lr = self.rates()

    def step(self, epoch: int | None = None) -> None:
        """Step each scheduler."""
        for s in self._schedulers:
            s.step()
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """With the state of each scheduler."""
        return _nested_state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _load_nested_state(self, state_dict)


def _check_same_optimizer(name: str, schedulers: list[LRScheduler], optimizer: Optimizer) -> None:
    if not schedulers or any(s.optimizer is not optimizer for s in schedulers):
        raise ConfigError(
            f"{name}: all schedulers must be made for the one optimizer that it is given"
        )


def _nested_state(self: Any) -> dict[str, Any]:
    state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
    return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}


def _load_nested_state(self: Any, state_dict: dict[str, Any]) -> None:
    self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
    for s, saved in zip(self._schedulers, state_dict["_schedulers"]):
        s.load_state_dict(saved)


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and far down again within ``total_steps`` (Smith and Topin 2017); the
    momentum (or beta1) goes the other way."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ConfigError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ConfigError(
                f"OneCycleLR: total_steps={total_steps} must be positive, pct_start={pct_start} in "
                f"0..1, anneal_strategy={anneal_strategy!r} 'cos' or 'linear'"
            )
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self._phases = _phases(total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if last_epoch == -1:
            groups = optimizer.param_groups
            for group, high in zip(groups, _each("max_lr", max_lr, groups)):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                self._set_momenta(groups, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _set_momenta(self, groups: list[dict], low: Any, high: Any) -> None:
        if not self.use_beta1 and "momentum" not in groups[0]:
            raise ConfigError(
                "OneCycleLR: the optimizer has no momentum to cycle; give cycle_momentum=False"
            )
        lows, highs = _each("base_momentum", low, groups), _each("max_momentum", high, groups)
        for group, base, top in zip(groups, lows, highs):
            group["base_momentum"], group["max_momentum"] = base, top
            self._write_momentum(group, top)

    def _write_momentum(self, group: dict, value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[float]:
        t = self.last_epoch
        if t > self.total_steps:
            raise ConfigError(
                f"OneCycleLR: step {t} of a cycle of {self.total_steps}; total_steps is the number "
                "of optimizer steps that the whole training makes"
            )
        k = next((k for k, phase in enumerate(self._phases) if t <= phase[0]), -1)
        end, lr_keys, momentum_keys = self._phases[k]
        start = self._phases[k - 1][0] if k % len(self._phases) else 0.0
        share = (t - start) / (end - start)
        out = []
        for group in self.optimizer.param_groups:
            out.append(self._between(group[lr_keys[0]], group[lr_keys[1]], share))
            if self.cycle_momentum:
                ends = group[momentum_keys[0]], group[momentum_keys[1]]
                self._write_momentum(group, self._between(*ends, share))
        return out

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _phases(total: int, pct_start: float, three: bool) -> list[tuple]:
    """(last step, keys of the rates, keys of the momenta) of each phase."""
    up = (("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
    first = float(pct_start * total) - 1
    if not three:
        down = (("max_lr", "min_lr"), ("base_momentum", "max_momentum"))
        return [(first, *up), (total - 1, *down)]
    back = (("max_lr", "initial_lr"), ("base_momentum", "max_momentum"))
    rest = (("initial_lr", "min_lr"), ("max_momentum", "max_momentum"))
    return [(first, *up), (2 * float(pct_start * total) - 2, *back), (total - 1, *rest)]


def _each(name: str, value: Any, groups: list[dict]) -> list[float]:
    if not isinstance(value, (list, tuple)):
        return [value] * len(groups)
    if len(value) != len(groups):
        raise ConfigError(f"OneCycleLR: {len(value)} values of {name} for {len(groups)} groups")
    return list(value)


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
            raise ConfigError(f"ReduceLROnPlateau: factor={factor}; it must be below 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ConfigError(
                f"ReduceLROnPlateau: mode={mode!r} must be 'min' or 'max', "
                f"threshold_mode={threshold_mode!r} 'rel' or 'abs'"
            )
        self.optimizer = optimizer
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = _each("min_lr", min_lr, optimizer.param_groups)
        self.last_epoch = 0
        self._last_lr = self.rates()
        self._reset()

    def _reset(self) -> None:
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0

    def is_better(self, value: float) -> bool:
        """Whether ``value`` beats the best so far by more than the threshold."""
        sign = 1 if self.mode == "max" else -1
        margin = self.threshold
        if self.threshold_mode == "rel":
            return sign * value > sign * self.best * (1 + sign * margin)
        return sign * value > sign * self.best + margin

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Report the metric of an epoch."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.rates()

    def _reduce(self) -> None:
        for group, low in zip(self.optimizer.param_groups, self.min_lrs):
            new = max(group["lr"] * self.factor, low)
            if group["lr"] - new > self.eps:
                group["lr"] = new
