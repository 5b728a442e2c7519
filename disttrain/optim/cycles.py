"""Schedules that go up and down: warm restarts, the cyclical rate, the one cycle.

The last two move the momentum (or beta1) against the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from .optimizer import Optimizer
from .scheduler import LRScheduler, function_state, per_group, put


class CosineAnnealingWarmRestarts(LRScheduler):
    """A cosine from base to eta_min over T_0 epochs, again and again, each T_mult times as long."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        name = "CosineAnnealingWarmRestarts"
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ConfigError(f"{name}: Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ConfigError(f"{name}: Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ConfigError(
                f"{name}: Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i: float = T_0
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on by one epoch, or to ``epoch``, which may be a fraction."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            epoch = epoch or 0
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with self._within_step():
            values = self.get_lr()
        self.set_rates(values)

    def _go_to(self, epoch: float) -> None:
        """Find the cycle in which ``epoch`` lies."""
        if epoch < 0:
            raise ConfigError(
                f"CosineAnnealingWarmRestarts: Expected non-negative epoch, but got {epoch}"
            )
        start: float = epoch // self.T_0 * self.T_0 if self.T_mult == 1 else 0
        self.T_i = self.T_0
        while epoch >= start + self.T_i:
            start += self.T_i
            self.T_i *= self.T_mult
        self.T_cur = epoch - start


class _WithMomentum(LRScheduler):
    """A schedule that may move the momentum (or beta1) as well."""

    cycle_momentum: bool

    def _begin_momenta(self, low: Any, high: Any, anew: bool) -> None:
        """Remember the bounds of the momentum in the groups, and begin at the upper one."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ConfigError(
                f"{type(self).__name__}: optimizer must support momentum or beta1 with "
                "`cycle_momentum` option enabled; give cycle_momentum=False"
            )
        self.use_beta1 = "betas" in defaults
        self.base_momentums = per_group("base_momentum", low, self.optimizer)
        self.max_momentums = per_group("max_momentum", high, self.optimizer)
        bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums)
        for group, base, top in bounds if anew else ():
            self._put_momentum(group, top)
            group["max_momentum"], group["base_momentum"] = top, base

    def _put_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum):
    """From ``base_lr`` up to ``max_lr`` and down again, over and over (Smith 2017).

    ``mode`` "triangular" keeps the height, "triangular2" halves it with every cycle, "exp_range"
    multiplies it by ``gamma`` at every step; ``scale_fn`` of the cycle or the step
    (``scale_mode``) replaces them. The momentum goes the other way.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = self._checked(optimizer)
        base_lrs = per_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                put(group, "lr", lr)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        if mode not in _HEIGHTS and scale_fn is None:
            raise ConfigError(
                f"CyclicLR: mode={mode!r}: mode is invalid and scale_fn is None; give one of "
                f"{', '.join(_HEIGHTS)}, or a scale_fn"
            )
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _HEIGHTS[mode][0]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momenta(base_momentum, max_momentum, anew=last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of the cycle (or at the step) ``x``, as a share of the first."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return _HEIGHTS[self.mode][1](self.gamma, x)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        height = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums)
            for group, base, top in bounds:
                self._put_momentum(group, top - (top - base) * height * scale)
        return [
            base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Without a plain ``scale_fn``, which cannot be saved; an object gives its attributes."""
        state, fn = super().state_dict(), self._scale_fn_custom
        return {**state, "_scale_fn_custom": None if fn is None else function_state(fn)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict.get("_scale_fn_custom")
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if saved is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(saved)


# What a mode counts, and the height of its cycles.
_HEIGHTS: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda gamma, cycle: 1.0),
    "triangular2": ("cycle", lambda gamma, cycle: 1 / (2.0 ** (cycle - 1))),
    "exp_range": ("iterations", lambda gamma, step: gamma**step),
}


class OneCycleLR(_WithMomentum):
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
        self.optimizer = self._checked(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ConfigError(
                f"OneCycleLR: Expected float between 0 and 1 pct_start, but got {pct_start}"
            )
        _check_anneal("OneCycleLR", anneal_strategy)
        self.anneal_strategy = anneal_strategy
        self._phases = _phases(self.total_steps, pct_start, three_phase)
        max_lrs = per_group("max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, max_lrs):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momenta(base_momentum, max_momentum, anew=last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        t = self.last_epoch
        if t > self.total_steps:
            raise ConfigError(
                f"OneCycleLR: Tried to step {t} times. The specified number of total steps is "
                f"{self.total_steps}, which is the number of optimizer steps of the whole training"
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
                self._put_momentum(group, self._between(*ends, share))
        return out

    def _between(self, start: float, end: float, share: float) -> Any:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _total_steps(total: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total is None and (epochs is None or steps_per_epoch is None):
        raise ConfigError(
            "OneCycleLR: You must define either total_steps OR (epochs AND steps_per_epoch)"
        )
    given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, value in ({"total_steps": total} if total is not None else given).items():
        if not isinstance(value, int) or value <= 0:
            raise ConfigError(f"OneCycleLR: Expected positive integer {name}, but got {value}")
    return total if total is not None else epochs * steps_per_epoch  # type: ignore[operator]


def _check_anneal(name: str, strategy: str) -> None:
    if strategy not in ("cos", "linear"):
        raise ConfigError(
            f"{name}: anneal_strategy must be one of 'cos' or 'linear', instead got {strategy}"
        )


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


class SWALR(LRScheduler):
    """From the present rates to ``swa_lr`` within ``anneal_epochs``, and then constant (Izmailov
    et al. 2018)."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        self._checked(optimizer)
        for lr, group in zip(per_group("swa_lr", swa_lr, optimizer), optimizer.param_groups):
            group["swa_lr"] = lr
        _check_anneal("SWALR", anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ConfigError(
                f"SWALR: anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way is behind after the share ``t`` of the epochs."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (
            self.anneal_func(max(0, min(1, t / max(1, self.anneal_epochs))))
            for t in (step - 1, step)
        )
        out = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            out.append(end * now + start * (1 - now))
        return out
