"""What callers give to collectives, as arrays: tensors, lists of tensors, operators, times.

Knows Tensors and arrays; no groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ...backends.device.memory import memory_of
from ...comm.calls.work import Done, Work
from ...core.tensor import Tensor, note_read
from ...core.writes import touched
from ...errors import ConfigError, DeviceError
from ...futures import Future


def array_of(where: str, t: Tensor, written: bool = True) -> Any:
    """The raw array of one tensor, on the host or a device; ``written``: the collective writes to
    it."""
    if not isinstance(t, Tensor):
        raise TypeError(
            f"Invalid function argument. {where}: a Tensor is needed, {type(t).__name__} given"
        )
    if t.is_meta:
        raise DeviceError(f"{where}: a tensor on the meta device has no data to communicate")
    note_read(t)
    if written:
        touched(t)
    array = t.array
    return array if array.__class__ is np.ndarray else memory_of(array).raw(array)


def arrays_of(where: str, tensors: Sequence[Tensor], written: bool) -> list[Any]:
    """The arrays of a list of tensors."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"Invalid function argument. {where}: a list of tensors, one per rank, is needed"
        )
    return [array_of(where, t, written) for t in tensors]


def handed(work: Work | None, async_op: bool, *outputs: object) -> Work | None:
    """What PyTorch returns: a Work when asked for one, else None."""
    if not async_op:
        return None
    work = Done() if work is None else work
    work.outputs = list(outputs)
    return work


def promised(work: Work | None, async_op: bool, *outputs: object) -> Future | None:
    """The same of collectives that give a future."""
    done = handed(work, async_op, *outputs)
    return None if done is None else done.get_future()


def seconds_of(where: str, timeout: timedelta | float | None) -> float | None:
    """A timeout in seconds."""
    if timeout is None:
        return None
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if value <= 0:
        raise ConfigError(f"{where}: timeout={timeout}; a positive time is needed")
    return value
