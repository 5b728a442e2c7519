"""``keras.distribution.DataParallel`` over ranks: each takes its rows of every batch, gradients are
averaged over all rows as DDP does, variables of metrics summed that say so (``aggregation``).
Hooks around Keras' own methods, which do nothing without several ranks.

Ranks begin with rank 0's variables, and draw the order of rows that it draws. With
``auto_shard_dataset=False`` a rank's data are its own rows. Statistics that BatchNormalization
keeps are averaged over rows; as in DDP, it normalises each rank's rows by their own, and a loss
whose mean leaves out masked rows, or divides by weights, leaves out and divides by a rank's own.
``predict`` computes all rows on every rank. Rank 0 shows progress and writes callbacks' files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import keras
from keras.src.backend.torch.trainer import TorchTrainer
from keras.src.callbacks import BackupAndRestore, CSVLogger, ModelCheckpoint, ProgbarLogger
from keras.src.distribution import distribution_lib
from keras.src.losses.loss import Loss
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

from ...distributed import replicas
from ...distributed.replicas import place
from ...errors import ConfigError
from .devices import ALONE, library

# In a step: this rank's share of all rows; what metrics held before it, where that is none.
_STEP: ContextVar[tuple[float, list | None] | None] = ContextVar("step", default=None)
_WRITES = {ModelCheckpoint: "_save_model", BackupAndRestore: "_save_model on_train_end",
           CSVLogger: "on_train_begin on_epoch_end on_train_end"}  # fmt: skip


def _shared() -> Any:
    """The distribution that is in force, where it has several ranks; else None."""
    found = keras.distribution.distribution()
    if found is None or place()[1] == 1:
        return None
    if isinstance(found, keras.distribution.DataParallel):
        return found
    raise ConfigError(f"keras.distribution: {type(found).__name__} given; over ranks: {ALONE}")


def _values(variables: Iterable[Any]) -> list[Any]:
    return [v.value.detach().clone() for v in variables]


def _assign(variables: Iterable[Any], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _of_metrics(model: Any) -> list[Any]:
    found = {id(v): v for metric in model.metrics for v in metric.variables}
    return [v for v in found.values() if v.aggregation == "sum"]


@contextmanager
def stepping(share: float | None = 1.0, before: Any = None) -> Iterator[None]:
    """Inside, gradients that are applied are summed over ranks, each with its share (None: not)."""
    token = _STEP.set(None if share is None else (share, before))
    try:
        yield
    finally:
        _STEP.reset(token)


def _step(run: Callable[[Any], Any], trains: bool, model: Any, data: Any) -> Any:
    shared = _shared()
    if shared is None:
        return run(data)
    count = next(len(leaf) for leaf in keras.tree.flatten(data) if leaf is not None)
    kept, share = (replicas.rows if shared.auto_shard_dataset else replicas.own_rows)(count)
    mine = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[kept], data)
    before = None if share else _values(_of_metrics(model))
    with stepping(share, before):
        logs = run(mine)
    _assign(_of_metrics(model) if before is not None else (), before or ())
    if trains:
        moved = [v for v in model.non_trainable_variables if "float" in v.dtype]
        _assign(moved, replicas.summed(_values(moved), share))
    return logs


# --- hooks: (Keras' own method, its arguments) ---------------------------------------------------
def _around(owner: type, name: str, hook: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(lambda *args, **kwargs: hook(original, *args, **kwargs)))


def _apply(apply: Callable, self: Any, grads: Any, *args: Any, **kwargs: Any) -> None:
    step = _STEP.get()
    if step is None:
        return apply(self, grads, *args, **kwargs)
    summed = replicas.summed(list(grads), step[0])
    with stepping(None):  # an optimizer inside this one is given what is reduced
        return apply(self, summed, *args, **kwargs)


def _loss(call: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    value, step = call(self, *args, **kwargs), _STEP.get()
    share = step[0] if step is not None and self.reduction == "sum" else 0.0
    return value / share if share else value  # (the gradients' share is to take nothing of sums)


def _making(name: str) -> Callable:
    def hook(make: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
        before = getattr(self, name)
        make(self, *args, **kwargs)
        if (made := getattr(self, name)) is not before:
            setattr(self, name, partial(_step, made, name == "train_function", self))

    return hook


def _metrics(result: Callable, self: Any) -> Any:
    if _shared() is None:
        return result(self)
    variables, step = _of_metrics(self), _STEP.get()
    if step is not None and step[1] is not None:
        _assign(variables, step[1])
    own = _values(variables)
    _assign(variables, replicas.summed(own))
    try:  # (a result may be the variable itself)
        return keras.tree.map_structure(lambda v: keras.ops.copy(v), result(self))
    finally:
        _assign(variables, own)


def _build(build: Callable, self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    build(self, iterator, data_batch)
    if (iterator is not None or self.train_function is None) and _shared() is not None:
        found = [*self.variables, *(self.optimizer.variables if self.optimizer else ())]
        replicas.begin_alike([v.value.detach() for v in found])


def _on_first(write: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    return write(self, *args, **kwargs) if _shared() is None or place()[0] == 0 else None


def _quiet(set_params: Callable, self: Any, params: dict) -> None:
    others = _shared() is not None and place()[0] != 0
    set_params(self, {**params, "verbose": 0} if others else params)


def hook() -> None:
    """Give Keras' torch backend what data parallel training asks of it; once."""
    if distribution_lib.distribution_lib is not None:
        return
    distribution_lib.distribution_lib = keras.src.backend.distribution_lib = library()
    kept = property(lambda self: False, lambda self, value: None)  # every rank is given all rows
    distribution_lib.Distribution._is_multi_process = kept
    for optimizer in (LossScaleOptimizer, MultiOptimizer, BaseOptimizer):
        _around(optimizer, "apply", _apply)
    _around(Loss, "__call__", _loss)
    for name in ("train_function", "test_function"):
        _around(TorchTrainer, f"make_{name}", _making(name))
    _around(TorchTrainer, "get_metrics_result", _metrics)
    _around(TorchTrainer, "_symbolic_build", _build)
    for owner, writes in _WRITES.items():
        for name in writes.split():
            _around(owner, name, _on_first)
    _around(ProgbarLogger, "set_params", _quiet)
