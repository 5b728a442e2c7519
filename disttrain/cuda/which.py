"""The platform behind this package, and which of its devices an argument names."""

from __future__ import annotations

from ..backends.device.platform import Platform, made, platform, present
from ..core.types.device import device
from ..errors import DeviceError

KIND = "cuda"


def here() -> Platform:
    """CUDA, started. Raises ``DeviceError``, which says what is missing."""
    return platform(KIND)


def started() -> Platform | None:
    """The same, if something has used it before."""
    return made(KIND)


def device_count() -> int:
    """How many CUDA devices this process can use; starts nothing."""
    return present(KIND)[0]


def is_available() -> bool:
    """Whether there is a CUDA device that can be used. Starts nothing: a process that has only
    asked may still fork children that use CUDA."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether this process has used CUDA."""
    return started() is not None


def init() -> None:
    """Start CUDA now, and not when it is first used."""
    here()


def index_of(where: object, optional: bool = True) -> int:
    """The number of the device ``where``: a number, a device, a name; None, or a device without a
    number, is the calling thread's."""
    if isinstance(where, str):
        where = device(where)
    if isinstance(where, device):
        if where.type != KIND:
            raise ValueError(f"Expected a cuda device, but got: {where}")
        where = where.index
    if where is None:
        if not optional:
            raise ValueError("Expected a cuda device with a specified index or an integer")
        return here().current()
    if not isinstance(where, int) or isinstance(where, bool):
        raise ValueError(f"Expected a cuda device, but got: {where!r}")
    count = here().count()
    if not 0 <= where < count:
        raise DeviceError(
            f"device cuda:{where}: invalid device ordinal; there are {count} CUDA devices, whose "
            "numbers begin at 0 (see CUDA_VISIBLE_DEVICES)"
        )
    return where
