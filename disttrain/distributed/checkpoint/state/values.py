"""Values of state dicts: gathered from sharded tensors, or cut to lie as a sharded tensor does.

Knows tensors; no modules and no optimizers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....comm.group.group import ProcessGroup
from ....core import Tensor, no_grad, wrap
from ...tensor import DTensor, distribute_tensor


def map_values(fn: Callable, value: object) -> Any:
    """``fn`` of every tensor in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, dict):
        out = copy.copy(value)  # of its class, with what it has beside its values
        for k, v in value.items():
            out[k] = map_values(fn, v)
        return out
    if isinstance(value, Mapping):
        return type(value)({k: map_values(fn, v) for k, v in value.items()})  # type: ignore[call-arg]
    if isinstance(value, (list, tuple)):
        parts = [map_values(fn, v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def gathered(value: object) -> Any:
    """``value`` with every sharded tensor in it whole. Every rank calls it, on alike values."""
    with no_grad():
        return map_values(lambda t: t.full_tensor() if isinstance(t, DTensor) else t, value)


def like(value: Tensor, target: object) -> Tensor:
    """``value``, whole on every rank or sharded in any way, as it lies in ``target``."""
    if not isinstance(target, DTensor):
        return gathered(value)
    if isinstance(value, DTensor):
        if value.device_mesh == target.device_mesh:
            if value.placements == target.placements:
                return value
            return value.redistribute(placements=target.placements)
        value = gathered(value)
    return distribute_tensor(
        value.detach(), target.device_mesh, target.placements, src_data_rank=None
    )


def from_rank0(value: Any, meta: tuple[tuple[int, ...], Any], group: ProcessGroup) -> Tensor:
    """The first rank's ``value`` on every rank; others know its ``meta``, shape and numpy type."""
    array = np.empty(*meta)
    if group.rank == 0:
        given = value.detach().array
        array[...] = memory_of(given).numbers(memory_of(given).raw(given))
    group.broadcast(array, 0)
    return wrap(array)


def _gather_state_dict(state_dict: object, **ignored: object) -> Any:
    """A nested dict with whole tensors: what programs for PyTorch call ``gathered``."""
    return gathered(state_dict)


__all__ = ["_gather_state_dict", "from_rank0", "gathered", "like", "map_values"]
