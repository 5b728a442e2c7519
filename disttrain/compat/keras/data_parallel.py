"""``keras.distribution.DataParallel`` over ranks: each takes its rows of every batch, gradients are
averaged over all rows as DDP does, variables of metrics summed that say so (``aggregation``).
Hooks around Keras' own methods, which do nothing without several ranks.

Ranks begin with rank 0's variables, and draw the order of rows that it draws. With
``auto_shard_dataset=False`` a rank's data are its own rows. Statistics that BatchNormalization
keeps are averaged; as in DDP, it normalises each rank's rows by their own. ``predict`` computes all
rows on every rank. Rank 0 alone shows the progress bar and saves checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import keras
from keras.src.backend.torch.trainer import TorchTrainer
from keras.src.callbacks import ModelCheckpoint, ProgbarLogger
from keras.src.distribution import distribution_lib
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

from ...distributed import replicas
from ...distributed.replicas import place
from ...errors import ConfigError
from .devices import ALONE, library

# In a step: this rank's share of all rows; what metrics held before it, where that is none.
_STEP: ContextVar[tuple[float, list | None] | None] = ContextVar("step", default=None)


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


def _step(model: Any, run: Callable[[Any], Any], data: Any) -> Any:
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
    return logs


def _train_step(model: Any, run: Callable[[Any], Any], data: Any) -> Any:
    logs = _step(model, run, data)
    kept = [v for v in model.non_trainable_variables if "float" in v.dtype]
    if kept and _shared() is not None:
        _assign(kept, replicas.summed(_values(kept), 1.0 / place()[1]))
    return logs


# --- hooks: (Keras' own method, its arguments) ---------------------------------------------------
def _around(owner: type, name: str, hook: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(lambda *args, **kwargs: hook(original, *args, **kwargs)))


def _apply(apply: Callable, self: Any, grads: Any, *args: Any, **kwargs: Any) -> None:
    step = _STEP.get()
    if step is None:
        return apply(self, grads, *args, **kwargs)
    grads = list(grads)
    summed = iter(replicas.summed([g for g in grads if g is not None], step[0]))
    grads = [None if g is None else next(summed) for g in grads]
    with stepping(None):  # an optimizer inside this one is given what is reduced
        return apply(self, grads, *args, **kwargs)


def _making(name: str, step: Callable) -> Callable:
    def hook(make: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
        before = getattr(self, name)
        make(self, *args, **kwargs)
        if getattr(self, name) is not before:
            setattr(self, name, partial(step, self, getattr(self, name)))

    return hook


def _metrics(result: Callable, self: Any) -> Any:
    if _shared() is None:
        return result(self)
    variables, step = _of_metrics(self), _STEP.get()
    if step is not None and step[1] is not None:
        _assign(variables, step[1])
    own = _values(variables)
    _assign(variables, replicas.summed(own))
    try:
        return result(self)
    finally:
        _assign(variables, own)


def _build(build: Callable, self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    build(self, iterator, data_batch)
    if (iterator is not None or self.train_function is None) and _shared() is not None:
        found = [*self.variables, *(self.optimizer.variables if self.optimizer else ())]
        values = _values(found)
        replicas.begin_alike(values)
        _assign(found, values)


def _distribution(init: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    init(self, *args, **kwargs)
    self._is_multi_process = False  # every rank is given all rows, and takes its own


def _on_first(save: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    return save(self, *args, **kwargs) if _shared() is None or place()[0] == 0 else None


def _quiet(set_params: Callable, self: Any, params: dict) -> None:
    others = _shared() is not None and place()[0] != 0
    set_params(self, {**params, "verbose": 0} if others else params)


def hook() -> None:
    """Give Keras' torch backend what data parallel training asks of it; once."""
    if distribution_lib.distribution_lib is not None:
        return
    distribution_lib.distribution_lib = keras.src.backend.distribution_lib = library()
    _around(distribution_lib.Distribution, "__init__", _distribution)
    for optimizer in (LossScaleOptimizer, MultiOptimizer, BaseOptimizer):
        _around(optimizer, "apply", _apply)
    for kind, step in {"train": _train_step, "test": _step}.items():
        _around(TorchTrainer, f"make_{kind}_function", _making(f"{kind}_function", step))
    _around(TorchTrainer, "get_metrics_result", _metrics)
    _around(TorchTrainer, "_symbolic_build", _build)
    _around(ModelCheckpoint, "_save_model", _on_first)
    _around(ProgbarLogger, "set_params", _quiet)
