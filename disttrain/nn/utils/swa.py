"""Averages of a module's parameters over training: AveragedModel and what it averages by.

Stochastic weight averaging (Izmailov et al. 2018) and exponential moving averages. The schedule
that goes with them is ``optim.lr_scheduler.SWALR``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from ... import ops
from ...core import no_grad
from ...core.annotations import DeviceLike
from ...core.types import dtypes
from ...errors import ConfigError
from ..module import Module
from ..modules.batchnorm import _BatchNorm

AvgFn = Callable[[Any, Any, Any], Any]
MultiAvgFn = Callable[[Sequence[Any], Sequence[Any], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """``fn(average, value, n)``: decay * average + (1 - decay) * value."""
    _check_decay(decay)

    def ema_update(average: ops.Tensor, value: ops.Tensor, n: ops.Tensor) -> Any:
        with no_grad():
            return decay * average + (1 - decay) * value

    return ema_update


def get_swa_avg_fn() -> AvgFn:
    """``fn(average, value, n)``: the mean of n + 1 values, ``average`` being that of n."""

    def swa_update(average: ops.Tensor, value: ops.Tensor, n: ops.Tensor) -> Any:
        with no_grad():
            return average + (value - average) / (n + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """As ``get_ema_avg_fn`` for lists of tensors, in place."""
    _check_decay(decay)

    def ema_update(averages: Sequence[Any], values: Sequence[Any], n: ops.Tensor) -> None:
        with no_grad():
            for average, value in zip(averages, values, strict=True):
                average.copy_(_lerp(average, value, 1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """As ``get_swa_avg_fn`` for lists of tensors, in place."""

    def swa_update(averages: Sequence[Any], values: Sequence[Any], n: ops.Tensor) -> None:
        with no_grad():
            for average, value in zip(averages, values, strict=True):
                average.copy_(_lerp(average, value, 1 / (float(n) + 1)))

    return swa_update


def _lerp(average: ops.Tensor, value: ops.Tensor, weight: float) -> Any:
    return average + (value - average) * weight


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ConfigError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are averages; ``update_parameters(model)`` adds one.

    ``avg_fn(average, value, n)`` gives a new average; ``multi_avg_fn(averages, values, n)`` changes
    lists of them in place; without either it is the mean of all values. ``n`` counts the values
    before. ``use_buffers``: buffers are averaged too, otherwise they are those of ``model``.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", ops.tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the values of ``model`` into the averages; the first are copied."""
        with no_grad():
            averages, values = self._pairs(model)
            if int(self.n_averaged) == 0:
                for average, value in zip(averages, values):
                    average.copy_(value)
            else:
                self._average(averages, values)
            if not self.use_buffers:
                for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                    mine.detach().copy_(theirs.detach())
            self.n_averaged += 1

    def _pairs(self, model: Module) -> tuple[list[Any], list[Any]]:
        if self.use_buffers:
            mine: list[Any] = [*self.module.parameters(), *self.module.buffers()]
            theirs: list[Any] = [*model.parameters(), *model.buffers()]
        else:
            mine, theirs = list(self.parameters()), list(model.parameters())
        pairs = list(zip(mine, theirs))
        return [a.detach() for a, _ in pairs], [b.detach().to(a.device) for a, b in pairs]

    def _average(self, averages: list[Any], values: list[Any]) -> None:
        if self.multi_avg_fn is None:
            one = self.avg_fn or get_swa_avg_fn()
            for average, value in zip(averages, values):
                average.copy_(one(average, value, self.n_averaged))
            return
        kinds: dict[Any, tuple[list[Any], list[Any]]] = {}
        for average, value in zip(averages, values):
            mine, theirs = kinds.setdefault(average.dtype, ([], []))
            mine.append(average)
            theirs.append(value)
        for mine, theirs in kinds.values():
            self.multi_avg_fn(mine, theirs, self.n_averaged)


def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Compute the running statistics of all batch-norm layers anew, in one pass over ``loader``
    (batches, or lists and tuples whose first element is the batch)."""
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    try:
        for m in momenta:
            m.reset_running_stats()
            m.momentum = None
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in momenta.items():
            m.momentum = momentum
        model.train(was_training)


__all__ = [
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]
