"""Devices by name. ``cpu`` holds numpy arrays, ``meta`` shapes without data, any other one arrays
of the platform of that name (``backends.device.platform``), which is asked when it is used and not
when it is named."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...backends.cuda import registration as cuda_is  # noqa: F401  (now ``device("cuda")`` means it)
from ...backends.device.array import Located
from ...backends.device.platform import offered, platform, present
from ...context import thread
from ...errors import DeviceError

HOST = ("cpu", "meta")  # what needs no platform
KINDS = tuple(
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone".split()
)  # PyTorch's


class device:  # noqa: N801  (the field's spelling)
    """A device: ``device("cpu")``, ``device("cuda:1")``, ``device("cuda", 1)``, ``device(1)`` (of
    the accelerator that there is). Without a number it is the current one of its kind. As a context
    manager it is the default device of new tensors of the calling thread."""

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | int | device, index: int | None = None) -> None:  # noqa: A002
        if isinstance(type, device):
            self.type, self.index = type.type, type.index if index is None else index
            return
        if type.__class__ is int:
            self.type, self.index = accelerator(), _number(type)
            return
        if not isinstance(type, str):
            raise DeviceError(
                f"device: {type!r} given; needed a name such as 'cpu', 'cuda:1' or 'meta', or the "
                "number of an accelerator's device"
            )
        name, colon, number = type.partition(":")
        if colon and not (number.isdigit() and (number == "0" or number[0] != "0")):
            raise DeviceError(
                f"device: {type!r} given (Invalid device string); after the colon a number is "
                "needed, as in 'cuda:1'"
            )
        if name not in KINDS and name not in offered():
            raise DeviceError(
                f"device: {type!r} given; Expected one of {', '.join(KINDS)} device type at start "
                "of device string"
            )
        if colon and index is not None:
            raise DeviceError(
                f"device: {type!r} and index={index} given: type (string) must not include an "
                "index because index was passed explicitly; give one of them"
            )
        self.type = name
        self.index = int(number) if colon else None if index is None else _number(index)

    def __repr__(self) -> str:
        inner = f", index={self.index}" if self.index is not None else ""
        return f"device(type={self.type!r}{inner})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple:
        return device, (self.type,) if self.index is None else (self.type, self.index)

    def __enter__(self) -> device:
        usable(self)
        thread.outer_devices.append(thread.default_device)
        thread.default_device = self
        return self

    def __exit__(self, *exc: object) -> None:
        thread.default_device = thread.outer_devices.pop()


def _number(index: int) -> int:
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError(
            f"device(): argument 'index' must be int, not {type(index).__name__}; {index!r} given"
        )
    if index < 0:
        raise DeviceError(f"device: index={index} given; Device index must not be negative")
    return index


CPU = device("cpu")
META = device("meta")


@functools.cache
def at(kind: str, index: int | None) -> device:
    """The device of that kind and number; always the same object."""
    if index is None and kind in HOST:
        return CPU if kind == "cpu" else META
    return device(kind, index)


@functools.cache
def _named(name: str) -> device:
    return device(name)


def accelerator() -> str:
    """The kind of device that numbers alone name. Raises ``DeviceError`` where there is none."""
    why = ""
    for kind in offered():
        count, why = present(kind)
        if count:
            return kind
    raise DeviceError(
        "device: Cannot access accelerator device when none is available"
        f"{f' ({why})' if why else ''}; use 'cpu', or ask `disttrain doctor` what this machine has"
    )


def usable(where: str | int | device | None) -> device:
    """The device ``where`` (None: the thread's default), with its number where it is an
    accelerator's. Raises ``DeviceError``, which says what is missing, where it is absent."""
    if where is None:
        where = thread.default_device
        if where is None:
            return CPU
    if where.__class__ is device:
        found: Any = where
    else:
        found = _named(where) if where.__class__ is str else device(where)
    kind = found.type
    if kind in HOST:
        return CPU if kind == "cpu" else META
    if kind not in offered():
        raise DeviceError(
            f"device {str(found)!r}: not available here; this version has "
            f"{', '.join((*HOST, *offered()))}. Ask `disttrain doctor` what this machine has."
        )
    there = platform(kind)
    index, count = found.index, there.count()
    if index is None:
        index = there.current()
    if index >= count:
        names = f"0 to {count - 1}" if count > 1 else "0" if count else "none"
        raise DeviceError(
            f"device {str(found)!r}: there are {count} {kind} devices (numbers: {names}); invalid "
            "device ordinal. Ask `disttrain doctor` what this machine has, and see "
            "CUDA_VISIBLE_DEVICES"
        )
    return at(kind, index)


def located(where: device) -> Located | None:
    """Where arrays of ``where``, which is usable, are made; None for the host's."""
    if where.type in HOST:
        return None
    return Located(platform(where.type), where.index or 0)


def on(where: device) -> AbstractContextManager[Any]:
    """Inside the block the thread's current device is ``where``, if that is an accelerator's."""
    there = located(where)
    return nullcontext() if there is None else there


def chosen(where: object) -> Any:
    """``where``, or (None) what the calling thread set as its default; None where it did not."""
    return thread.default_device if where is None else where


def set_default_device(where: str | int | device | None) -> None:
    """Set the device of new tensors of the calling thread."""
    if where is not None:
        usable(where)
        where = where if isinstance(where, device) else device(where)
    thread.default_device = where


def get_default_device() -> device:
    """The device of new tensors of the calling thread."""
    return usable(None)
