"""Devices by name. ``cpu`` holds numpy arrays, ``meta`` shapes without data."""

from __future__ import annotations

from .. import context
from ..errors import DeviceError

KINDS = ("cpu", "meta")


class device:  # noqa: N801  (the field's spelling)
    """A device: ``device("cpu")``, ``device("meta")``. As a context manager it is the default
    device of new tensors of the calling rank."""

    __slots__ = ("_before", "index", "type")

    def __init__(self, kind: str | device = "cpu", index: int | None = None) -> None:
        if isinstance(kind, device):
            self.type, self.index = kind.type, kind.index
            return
        if not isinstance(kind, str):
            raise DeviceError(f"device: {kind!r} given; needed a name such as 'cpu' or 'meta'")
        name, _, number = kind.partition(":")
        if number and not number.isdigit():
            raise DeviceError(f"device: {kind!r} given; after the colon a number is needed")
        self.type = name
        self.index = int(number) if number else index

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

    def __enter__(self) -> device:
        slots = context.current().slots
        self._before = slots.get("default_device")
        slots["default_device"] = usable(self)
        return self

    def __exit__(self, *exc: object) -> None:
        context.current().slots["default_device"] = self._before


CPU = device("cpu")
META = device("meta")


def usable(where: str | device | None) -> device:
    """The device ``where`` (None: the rank's default), or a ``DeviceError`` when it is absent."""
    if where is None:
        return context.current().slots.get("default_device") or CPU
    found = where if isinstance(where, device) else device(where)
    if found.type in KINDS:
        return found
    raise DeviceError(
        f"device {str(found)!r}: not available here; this version has {', '.join(KINDS)}. "
        f"Ask `disttrain doctor` what this machine has."
    )


def set_default_device(where: str | device | None) -> None:
    """Set the device of new tensors of the calling rank."""
    context.current().slots["default_device"] = None if where is None else usable(where)


def get_default_device() -> device:
    """The device of new tensors of the calling rank."""
    return usable(None)
