"""Where the host waits for a device because a copy makes it: whether the program is to be told."""

from __future__ import annotations

from ...context import current
from ...errors import DeviceError
from ...trace import call_site, warn

MODES = ("default", "warn", "error")
_MODE = "device.sync_debug_mode"  # the rank's slot


def set_mode(number: int) -> None:
    """Say what is to happen, by number in ``MODES``, in the calling rank."""
    current().slots[_MODE] = number


def mode() -> int:
    """What was said."""
    return current().slots.get(_MODE, 0)


def waits(what: str) -> None:
    """The host is about to wait."""
    number = current().slots.get(_MODE)
    if not number:
        return
    text = f"called a synchronizing CUDA operation: {what}, at {call_site()}"
    if number == 2:
        raise DeviceError(text)
    warn(text)
