"""What the processes of a program tell each other: arrays by value, and where they wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..collectives.tensors import all_gather_object
from ..groups import state
from ..tensor import DTensor
from . import inventory as known


def everybody(value: Any) -> list:
    """Every process' ``value``."""
    size = known.world()[1]
    if size == 1:
        return [value]
    found: list = [None] * size
    all_gather_object(found, value)
    return found


def check_equal(values: list[np.ndarray], message: str = "") -> None:
    """Raise ``AssertionError`` where a process brings other values than the first one."""
    mine = [x.tolist() for x in values]
    found = everybody(mine)
    if found[0] != mine:
        raise AssertionError(f"{message} Expected: {found[0]}; got: {mine}.")


def from_one(values: list[np.ndarray], is_source: bool | None = None) -> list[np.ndarray]:
    """The values of the source (None: the first process), for all."""
    source = known.world()[0] == 0 if is_source is None else is_source
    found: list[np.ndarray] = next(
        v for v in everybody(values if source else None) if v is not None
    )
    return found


def gathered(value: Any, tiled: bool = False) -> np.ndarray:
    """The values of all processes, stacked, or (``tiled``) one behind the other; of a DTensor the
    whole."""
    if isinstance(value, DTensor):
        whole: np.ndarray = value.full_tensor().detach().numpy()
        return whole
    parts = everybody(np.asarray(value))
    return np.concatenate(parts) if tiled and parts[0].ndim else np.stack(parts)


def meet(address: str | None, count: int | None, number: int | None) -> None:
    """Let the processes meet: as the launcher says, or at ``address``, each by its number."""
    if state.is_initialized():
        raise RuntimeError("distributed.initialize should only be called once.")
    if address is None:
        known.world()
    elif count is None or number is None:
        raise ValueError("Number of processes, and the process id, must be defined.")
    else:
        state.init_process_group(init_method=f"tcp://{address}", world_size=count, rank=number)
