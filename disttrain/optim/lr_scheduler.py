"""Learning-rate schedules with PyTorch's names, arguments and values, and ``warmup_cosine``.

The closed forms stand beside each: with ``t`` the number of calls of ``step`` and ``base`` the rate
at the start.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ConfigError
from .cycles import SWALR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from .optimizer import Optimizer
from .phases import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from .scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, function_state


class LambdaLR(LRScheduler):
    """base * fn(t); one function for all groups, or one for each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        fns = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(fns) != groups:
            raise ConfigError(
                f"{type(self).__name__}: {len(fns)} functions for {groups} parameter groups; "
                "give one, or one for each group"
            )
        self._check_functions(fns)
        self.lr_lambdas = fns
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [base * fn(self.last_epoch) for base, fn in zip(self.base_lrs, self.lr_lambdas)]

    def _check_functions(self, fns: list[Any]) -> None:
        """Anything may stand here until it is called."""

    def state_dict(self) -> dict[str, Any]:
        """Without plain functions, which cannot be saved; objects with ``__call__`` give theirs."""
        state = super().state_dict()
        state["lr_lambdas"] = [function_state(fn) for fn in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {k: v for k, v in state_dict.items() if k != "lr_lambdas"}
        super().load_state_dict(rest)
        for fn, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if saved is not None:
                fn.__dict__.update(saved)


class MultiplicativeLR(LambdaLR):
    """Each rate times fn(t) at every step."""

    def _check_functions(self, fns: list[Any]) -> None:
        for fn in fns:
            if not callable(fn):
                raise TypeError(
                    f"MultiplicativeLR: lr_lambda should be a function, but got {type(fn).__name__}"
                )

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self.rates()
        return [lr * fn(self.last_epoch) for lr, fn in zip(self.rates(), self.lr_lambdas)]


class StepLR(LRScheduler):
    """base * gamma ** (t // step_size)."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self.rates()
        return [lr * self.gamma for lr in self.rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [b * self.gamma ** (self.last_epoch // self.step_size) for b in self.base_lrs]


class MultiStepLR(LRScheduler):
    """base * gamma ** (number of milestones at or before t)."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        times = self.milestones.get(self.last_epoch, 0)
        return [lr * self.gamma**times for lr in self.rates()] if times else self.rates()

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """With the milestones as a plain dict from epoch to how often it was given."""
        return {**super().state_dict(), "milestones": dict(self.milestones)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)


class ConstantLR(LRScheduler):
    """base * factor before ``total_iters``, then base."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ConfigError(
                f"ConstantLR: factor={factor}: Constant multiplicative factor expected to be "
                "between 0 and 1"
            )
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self.rates()]
        if self.last_epoch == self.total_iters:
            return [lr * (1.0 / self.factor) for lr in self.rates()]
        return self.rates()

    def _get_closed_form_lr(self) -> list[Any]:
        return [
            base * (self.factor if self.last_epoch < self.total_iters else 1.0)
            for base in self.base_lrs
        ]


class LinearLR(LRScheduler):
    """base * a factor that goes evenly from ``start_factor`` to ``end_factor``."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ConfigError(
                f"LinearLR: start_factor={start_factor}: Starting multiplicative factor expected "
                "to be greater than 0 and less or equal to 1"
            )
        if not 0 <= end_factor <= 1:
            raise ConfigError(
                f"LinearLR: end_factor={end_factor}: Ending multiplicative factor expected to be "
                "between 0 and 1"
            )
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        t, total = self.last_epoch, self.total_iters
        if t == 0:
            return [lr * self.start_factor for lr in self.rates()]
        if self._is_initial or t > total:
            return self.rates()
        gain = self.end_factor - self.start_factor
        grow = 1.0 + gain / (total * self.start_factor + (t - 1) * gain)
        return [lr * grow for lr in self.rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.last_epoch, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """base * gamma ** t."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return self.rates() if self._is_initial else [lr * self.gamma for lr in self.rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """base * (1 - t / total_iters) ** power."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        t, total = self.last_epoch, self.total_iters
        if self._is_initial or t > total:
            return self.rates()
        decay = ((1 - t / total) / (1 - (t - 1) / total)) ** self.power
        return [lr * decay for lr in self.rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.last_epoch, self.total_iters) / self.total_iters
        return [base * (1 - share) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi t / T_max)) / 2 (Loshchilov and Hutter 2017)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        t, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return self.rates()
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - period) % (2 * period) == 0:  # the rate is at its lowest: the ratio is 0 / 0
            rise = (1 - math.cos(math.pi / period)) / 2
            return [lr + (b - low) * rise for lr, b in zip(self.rates(), self.base_lrs)]
        ratio = (1 + math.cos(math.pi * t / period)) / (1 + math.cos(math.pi * (t - 1) / period))
        return [ratio * (lr - low) + low for lr in self.rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


def warmup_cosine(
    optimizer: Optimizer, warmup: int, total: int, floor: float = 0.0, last_epoch: int = -1
) -> LambdaLR:
    """Up evenly over ``warmup`` steps, then down along half a cosine until ``total``, to ``floor``
    times the base rate. The first step's rate is base / warmup, not 0."""
    if not 0 <= warmup < total:
        raise ConfigError(f"warmup_cosine: warmup={warmup} must be in 0..total-1, total={total}")

    def factor(t: int) -> float:
        if t < warmup:
            return (t + 1) / warmup
        share = min((t - warmup) / (total - warmup), 1.0)
        return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2

    return LambdaLR(optimizer, factor, last_epoch)


class _LRScheduler(LRScheduler):
    """Its name in older programs."""


__all__ = [
    "EPOCH_DEPRECATION_WARNING",
    "SWALR",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "warmup_cosine",
]
