"""Tensors in another type or on another device: ``to`` and its short forms, pinned memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ....backends.device.array import DeviceArray
from ....backends.device.platform import Stream, made, offered, platform
from ....backends.null import NullArray
from ....core.annotations import DeviceLike, Format
from ....core.tensor import Tensor, note_read, wrap
from ....core.types import dtypes
from ....core.types.device import CPU, HOST, accelerator, device, usable
from ....errors import DeviceError
from ...primitives import elementwise as el
from ...primitives.moving import moved
from ..views.memory_formats import copy_in_order, in_format, kept_order

_OPTIONS = ("non_blocking", "copy")
_KNOWN = {"device", "dtype", "other", "tensor", "memory_format", *_OPTIONS}
_TYPES = (float, int, bool, complex)  # Python's own, where PyTorch takes them for types


def asked(args: tuple, kwargs: dict) -> tuple[Any, Any, bool, bool, Any]:
    """What the arguments of ``to`` ask for: device and type (None: as it is), non_blocking, copy,
    memory_format."""
    if kwargs and (unknown := set(kwargs) - _KNOWN):
        raise TypeError(
            f"to() received an invalid combination of arguments: {sorted(unknown)[0]!r} is not "
            f"known; known: {', '.join(sorted(_KNOWN))}"
        )
    kind, where = kwargs.get("dtype"), kwargs.get("device")
    other = kwargs.get("other", kwargs.get("tensor"))
    rest: list = []
    for i, a in enumerate(args if other is None else (other, *args)):
        if isinstance(a, Tensor) and not i:
            kind, where = a.dtype, a.device
        elif a is None and i < 2:
            continue
        elif isinstance(a, dtypes.dtype) or a in _TYPES:
            kind = a
        elif a.__class__ is bool and i:
            rest.append(a)
        elif isinstance(a, (str, int, device)) and not i:
            where = a
        else:
            raise TypeError(
                f"to() received an invalid combination of arguments: {a!r} as number {i + 1}; "
                "needed to(dtype), to(device), to(device, dtype) or to(other), then non_blocking "
                "and copy"
            )
    non_blocking, copy = ([*rest, False, False])[:2]
    return (
        None if where is None else usable(where),
        None if kind is None else dtypes.as_dtype(kind),
        bool(kwargs.get("non_blocking", non_blocking)),
        bool(kwargs.get("copy", copy)),
        kwargs.get("memory_format"),
    )


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``; self when nothing
    changes and ``copy`` is not asked for. ``non_blocking``: from pinned memory, the host does not
    wait; to the host, the values are there after the device's stream was waited for."""
    if not kwargs and len(args) == 1:  # the commonest forms, without more ado
        (first,) = args
        if first.__class__ is dtypes.dtype:
            return self if first.np == self.meta()[1] else el.cast(self, dtype=first.np)
        if first.__class__ is device or first.__class__ is str:
            where = usable(first)
            return self if where is self.device else _sent(self, where, None, False)
    where, kind, non_blocking, copy, layout = asked(args, kwargs)
    out = self if where is None and kind is None else _sent(self, where, kind, non_blocking)
    if self._composes is not None:
        return self.clone() if out is self and copy else out
    if out is self and copy:
        return copy_in_order(self, kept_order("to", self, layout))
    return out if layout is None else in_format(out, layout, out is not self)


def _sent(self: Tensor, where: device | None, kind: Any, non_blocking: bool) -> Tensor:
    out = self
    new = kind is not None and kind.np != self.meta()[1]
    if where is None or where == self.device:
        if new:
            out = el.cast(out, dtype=kind.np)
    elif where.type == "meta":
        shape, own = self.meta()
        out = wrap(NullArray(shape, kind.np if new else own))
    else:
        early = new and kind.itemsize < self.itemsize  # what is to travel is the smaller one
        if early:
            out = el.cast(out, dtype=kind.np)
        out = moved(out, where, non_blocking)
        if new and not early:
            out = el.cast(out, dtype=kind.np)
    return out


def cuda(
    self: Tensor,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    memory_format: Format | None = None,
) -> Tensor:
    """A copy on a CUDA device (None: the current one); self where it is there."""
    where = usable("cuda" if device is None else _of_kind(device, "cuda"))
    return to(self, where, non_blocking=non_blocking, memory_format=memory_format)


def _of_kind(where: Any, kind: str) -> device:
    if isinstance(where, int):
        return device(kind, where)
    found = device(where)
    if found.type != kind:
        raise DeviceError(f"{kind}: Invalid device, must be {kind} device; {str(found)!r} given")
    return found


def cpu(self: Tensor, memory_format: Format | None = None) -> Tensor:
    """A copy on the host; self where it is there."""
    return to(self, CPU) if memory_format is None else to(self, CPU, memory_format=memory_format)


def get_device(self: Tensor) -> int:
    """The number of the device that it is on, -1 on the host."""
    index = self.device.index
    return -1 if index is None else index


class OfDevice(Protocol):
    """A stream as programs have it (``dt.cuda.Stream``)."""

    @property
    def line(self) -> Stream: ...


def record_stream(self: Tensor, stream: OfDevice) -> None:
    """The memory is not given out again before what ``stream`` (of ``dt.cuda``) has at the time
    when it would be is done: for a tensor that another stream than its own works on."""
    array = self.array
    if isinstance(array, DeviceArray):
        array.platform.record_use(array.data, stream.line)


def pin_memory(self: Tensor, device: DeviceLike | None = None) -> Tensor:
    """A copy in page-locked memory, which an accelerator reads by itself; self where it is there,
    or where there is no accelerator."""
    if self.device.type not in HOST or self.is_meta:
        raise DeviceError(
            f"pin_memory: cannot pin a tensor on {self.device} (shape {list(self.shape)}): only "
            "dense CPU tensors can be pinned"
        )
    if is_pinned(self, device):
        return self
    try:
        where = platform(accelerator() if device is None else _named(device))
    except DeviceError:
        return self
    note_read(self)
    out = where.pinned(tuple(self.shape), self.array.dtype)
    np.copyto(out, self.array)
    return wrap(out)


def _named(where: Any) -> str:
    return (where if isinstance(where, device) else device(where)).type


def is_pinned(self: Tensor, device: DeviceLike | None = None) -> bool:
    """Whether the memory is page-locked."""
    if self.array.__class__ is not np.ndarray:
        return False
    kinds = offered() if device is None else (_named(device),)
    found = [made(kind) for kind in kinds]
    return any(p is not None and p.is_pinned(self.array) for p in found)


__all__ = ["cpu", "cuda", "get_device", "is_pinned", "pin_memory", "record_stream", "to"]
