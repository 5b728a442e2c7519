"""The primitive that moves arrays between devices. Its gradient moves back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...core.gate import Primitive
from ...core.types.device import CPU, device, located
from ...errors import MetaError
from ..declare import primitive


def _move(a: ArrayKind | np.ndarray, to: device, back: device, non_blocking: bool = False) -> Any:
    if isinstance(a, ArrayKind) and not isinstance(a, DeviceArray):
        return a.each_part(lambda part: _move(part, to, back, non_blocking))
    if not isinstance(a, (DeviceArray, np.ndarray)):
        a = np.asarray(a)
    there = located(to)
    if there is not None:
        return there.take(a, non_blocking)
    return a.to_host(non_blocking) if isinstance(a, DeviceArray) else a.copy()


def _batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return move(args[0], **params), dims[0]


move: Primitive = primitive(
    "to_copy", _move, "a",
    vjp={"a": lambda g, to, back, non_blocking=False: move(g, to=back, back=to)},
    jvp="linear", shape=lambda a, to, back, non_blocking=False: (a.shape, a.dtype),
    batch=_batch, samples=lambda rng: [((rng.normal(size=(3, 4)),), {"to": CPU, "back": CPU})],
)  # fmt: skip
move.elementwise = True
move.kinds = True  # its forward takes arrays of all kinds as they are


def moved(t: Any, to: device, non_blocking: bool = False) -> Any:
    """The Tensor ``t`` on the device ``to``, which is usable; recorded."""
    back = t.device
    if back == to:
        return t
    if back.type == "meta":
        raise MetaError(
            f"to('{to}'): Cannot copy out of meta tensor; no data! A tensor of shape "
            f"{list(t.shape)} on the meta device has no data to copy; use empty_like(t, "
            f"device='{to}') or Module.to_empty(device='{to}') and load values"
        )
    return move(t, to=to, back=back, non_blocking=non_blocking)
