"""LRScheduler: the base of learning-rate schedules, with PyTorch's meaning of ``last_epoch``.

A schedule multiplies what the groups' ``lr`` is (``get_lr``), so that several on one optimizer
compose; ``initial_lr`` in each group is where it started. A rate that is a Tensor stays that
Tensor, and is filled with the new value. It knows no update rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core import Tensor, no_grad
from ..errors import ConfigError, MissingSetting
from ..trace import warn
from .optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. With an epoch the closed form "
    "of the schedule is used, where it has one, in place of the form that goes on from the "
    "present rates."
)
_ORDER = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate of the "
    "schedule is passed over. Call `optimizer.step()` first. See "
    "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)


class LRScheduler:
    """Base of schedules. A subclass defines ``get_lr``, the rates after ``last_epoch`` moved, and
    may define ``_get_closed_form_lr``, the rates at any ``last_epoch`` without what went before.

    ``last_epoch`` -1 starts anew; another value resumes after that epoch, and needs ``initial_lr``
    in every group.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = self._checked(optimizer)
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copy(group["lr"]))
            elif "initial_lr" not in group:
                raise MissingSetting(
                    f"{type(self).__name__}: param 'initial_lr' is not specified in "
                    f"param_groups[{k}] when resuming scheduler with last_epoch={last_epoch}; load "
                    "the optimizer's state first"
                )
        self.base_lrs = [_copy(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[Any] = []
        self._initial_step()

    def _checked(self, optimizer: Optimizer | list) -> Optimizer:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: {type(optimizer).__name__} is not an Optimizer; give the "
                "optimizer whose rates it sets"
            )
        return optimizer

    def _initial_step(self) -> None:
        """The step that a schedule makes when it is made: it sets the first rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_last_lr(self) -> list[Any]:
        """The rates of all groups as last set by this schedule."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of all groups at ``last_epoch``."""
        raise NotImplementedError(f"{type(self).__name__}: a schedule defines get_lr()")

    def rates(self) -> list[Any]:
        """The rates of the groups as they are; Tensors copied."""
        return [_copy(group["lr"]) for group in self.optimizer.param_groups]

    def _warn_outside_step(self) -> None:
        """``get_lr`` goes on from the present rates, so outside of ``step`` it misleads."""
        if not self._get_lr_called_within_step:
            warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
            )

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to ``epoch``) and set the rates."""
        if self._step_count == 1 and not self.optimizer.stepped:
            warn(_ORDER)
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._within_step():
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        self.set_rates(values)

    @contextmanager
    def _within_step(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def set_rates(self, values: list[Any]) -> None:
        """Write the rates into the groups."""
        if len(values) != len(self.optimizer.param_groups):
            raise ConfigError(
                f"{type(self).__name__}: {len(values)} rates for "
                f"{len(self.optimizer.param_groups)} parameter groups; was a group added after "
                "the schedule was made?"
            )
        for group, lr in zip(self.optimizer.param_groups, values):
            put(group, "lr", lr)
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""
        self.__dict__.update(state_dict)


def _copy(value: Any) -> Any:
    is_tensor: bool = isinstance(value, Tensor)
    return value.clone() if is_tensor else value


def put(group: dict[str, Any], key: str, value: Any) -> None:
    """Give a hyperparameter a value; one that is a Tensor stays the same Tensor."""
    held, is_tensor = group[key], isinstance(group[key], Tensor)
    if is_tensor:
        with no_grad():
            held.fill_(float(value))
    else:
        group[key] = value


def per_group(name: str, value: object, optimizer: Optimizer) -> list[Any]:
    """One value for every group, from one or from a list."""
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ConfigError(
            f"{name} must have the same length as optimizer.param_groups: {len(values)} values "
            f"for {groups} groups; give one, or one for each group"
        )
    return [_copy(v) for v in values]


def function_state(fn: Callable) -> dict[str, Any] | None:
    """What can be saved of a function: the attributes of an object with ``__call__``, of a plain
    function nothing."""
    return None if hasattr(fn, "__code__") else dict(fn.__dict__)
