"""``keras.distribution.DataParallel`` over ranks: each takes its rows of every batch, gradients are
averaged over all rows as DDP does, metrics' variables are reduced as they say (``aggregation``).
Hooks around Keras' own methods, which do nothing without several ranks.

Ranks begin with rank 0's variables, and draw the order of rows that it draws. With
``auto_shard_dataset=False`` a rank's data are its own rows. Statistics that BatchNormalization
keeps are averaged; as in DDP, it normalises each rank's rows by their own. ``predict`` computes all
rows on every rank. Rank 0 alone shows the progress bar and saves checkpoints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import keras
import numpy as np
from keras.src.backend.torch.trainer import TorchTrainer
from keras.src.callbacks import ModelCheckpoint, ProgbarLogger
from keras.src.distribution import distribution_lib
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

import disttrain as dt

from ...errors import ConfigError
from .devices import library, world

# In a step: this rank's share of all rows, and what metrics held before it on a rank that has none
# (and computes another one's row for company).
_STEP: ContextVar[tuple[float, list | None] | None] = ContextVar("step", default=None)


def _shared() -> Any:
    """The distribution that is in force, where it has several ranks; else None."""
    found = keras.distribution.distribution()
    if found is None or world()[1] == 1:
        return None
    if not isinstance(found, keras.distribution.DataParallel):
        raise ConfigError(
            f"keras.distribution: {type(found).__name__} given; over disttrain's ranks there is "
            "DataParallel alone"
        )
    return found


def _reduced(tensors: list[Any], scale: float = 1.0) -> list[Any]:
    """The sums over ranks of ``scale`` times each tensor."""
    out = [t.detach() * scale if scale else dt.zeros_like(t) for t in tensors]
    dt.distributed.all_reduce_coalesced(out)
    return out


def _values(variables: Iterable[Any]) -> list[Any]:
    return [v.value.detach().clone() for v in variables]


def _assign(variables: Iterable[Any], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _of_metrics(model: Any) -> list[Any]:
    found = [v for metric in model.metrics for v in metric.variables]
    return list({id(v): v for v in found if v.aggregation in ("sum", "mean")}.values())


def _from_first(model: Any) -> None:
    """Rank 0's variables, and its generators of random numbers."""
    optimizer = getattr(model, "optimizer", None)
    for variable in [*model.variables, *(optimizer.variables if optimizer is not None else ())]:
        value = variable.value.detach().clone()
        dt.distributed.broadcast(value, 0)
        variable.assign(value)
    states: list = [dt.get_rng_state(), np.random.get_state(), random.getstate()]
    dt.distributed.broadcast_object_list(states, 0)
    for state, put in zip(states, (dt.set_rng_state, np.random.set_state, random.setstate)):
        put(state)


def _shard(data: Any, cuts: bool) -> tuple[Any, float]:
    """This rank's rows of a batch, at least one, and their share of all."""
    rows = next(len(leaf) for leaf in keras.tree.flatten(data) if leaf is not None)
    if not cuts:
        total = dt.tensor([float(rows)])
        dt.distributed.all_reduce(total)
        return data, rows / total.item()
    rank, size = world()
    begin, end = rank * rows // size, (rank + 1) * rows // size
    kept = slice(begin, end) if end > begin else slice(0, 1)
    cut = lambda leaf: None if leaf is None else leaf[kept]  # noqa: E731
    return keras.tree.map_structure(cut, data), (end - begin) / rows


def _step(model: Any, run: Callable[[Any], Any], data: Any) -> Any:
    shared = _shared()
    if shared is None:
        return run(data)
    mine, share = _shard(data, shared.auto_shard_dataset)
    before = None if share else _values(_of_metrics(model))
    token = _STEP.set((share, before))
    try:
        logs = run(mine)
    finally:
        _STEP.reset(token)
    if before is not None:
        _assign(_of_metrics(model), before)
    return logs


def _train_step(model: Any, run: Callable[[Any], Any], data: Any) -> Any:
    logs = _step(model, run, data)
    kept = [v for v in model.non_trainable_variables if "float" in v.dtype]
    if kept and _shared() is not None:
        _assign(kept, _reduced(_values(kept), 1.0 / world()[1]))
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
    there = [i for i, g in enumerate(grads) if g is not None]
    for i, g in zip(there, _reduced([grads[i] for i in there], step[0]), strict=True):
        grads[i] = g
    token = _STEP.set(None)  # an optimizer inside this one is given what is reduced
    try:
        return apply(self, grads, *args, **kwargs)
    finally:
        _STEP.reset(token)


@contextmanager
def summed() -> Iterator[None]:
    """Gradients that an optimizer applies inside are summed over the ranks before."""
    token = _STEP.set((1.0, None))
    try:
        yield
    finally:
        _STEP.reset(token)


def _making(name: str, step: Callable) -> Callable:
    def hook(make: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(self, name)
        make(self, *args, **kwargs)
        if getattr(self, name) is not before:
            setattr(self, name, partial(step, self, getattr(self, name)))
        return getattr(self, name)

    return hook


def _metrics(result: Callable, self: Any) -> Any:
    if _shared() is None:
        return result(self)
    variables, step = _of_metrics(self), _STEP.get()
    if step is not None and step[1] is not None:
        _assign(variables, step[1])
    own = _values(variables)
    scales = [1 if v.aggregation == "sum" else world()[1] for v in variables]
    _assign(variables, [s if n == 1 else s / n for s, n in zip(_reduced(own), scales, strict=True)])
    try:
        return result(self)
    finally:
        _assign(variables, own)


def _build(build: Callable, self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    build(self, iterator, data_batch)
    if iterator is not None and _shared() is not None:
        _from_first(self)


def _distribution(init: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
    init(self, *args, **kwargs)
    self._is_multi_process = False  # every rank is given all rows, and takes its own


def _on_first(save: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    return save(self, *args, **kwargs) if _shared() is None or world()[0] == 0 else None


def _quiet(set_params: Callable, self: Any, params: dict) -> None:
    set_params(self, params)
    if _shared() is not None and world()[0] != 0:
        self.verbose = 0


def hook() -> None:
    """Give Keras' torch backend what data parallel training asks of it; once."""
    if distribution_lib.distribution_lib is not None:
        return
    distribution_lib.distribution_lib = keras.src.backend.distribution_lib = library()
    _around(distribution_lib.Distribution, "__init__", _distribution)
    for optimizer in (LossScaleOptimizer, MultiOptimizer, BaseOptimizer):
        _around(optimizer, "apply", _apply)
    _around(TorchTrainer, "make_train_function", _making("train_function", _train_step))
    _around(TorchTrainer, "make_test_function", _making("test_function", _step))
    _around(TorchTrainer, "get_metrics_result", _metrics)
    _around(TorchTrainer, "_symbolic_build", _build)
    _around(ModelCheckpoint, "_save_model", _on_first)
    _around(ProgbarLogger, "set_params", _quiet)
