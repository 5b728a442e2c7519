"""What a device's sensors say, asked of NVML, the library by which the driver is managed; and what
is to happen where the host waits for a device without being told to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .. import settings
from ..backends.device.synchronization import MODES, mode, set_mode
from ..errors import ConfigError, DeviceError
from ..gpus import Nvml, NvmlError, survey, visible
from .which import index_of

_CORE, _SM_CLOCK = 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM


class _Rates(ctypes.Structure):  # nvmlUtilization_t
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def _asked(what: str, device: object, question: Callable[[Nvml, Any], int]) -> int:
    index = index_of(device)
    seen = visible(survey().cards, settings.VISIBLE_DEVICES.said())
    try:
        nvml = Nvml()
        if index >= len(seen):
            raise NvmlError(0, f"NVML sees {len(seen)} of the devices of this process")
        card = ctypes.c_uint(seen[index].card.index)
        return question(nvml, nvml.handle("nvmlDeviceGetHandleByIndex_v2", card))
    except (OSError, NvmlError) as error:
        raise DeviceError(
            f"{what}: cuda:{index}: the driver's library NVML does not tell it: {error}; see "
            "nvidia-smi"
        ) from None


def _rates(nvml: Nvml, handle: object) -> _Rates:
    found = _Rates()
    nvml.call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(found))
    return found


def utilization(device: object = None) -> int:
    """Percent of the last moments in which a kernel ran."""
    return _asked("utilization", device, lambda nvml, h: _rates(nvml, h).gpu)


def memory_usage(device: object = None) -> int:
    """Percent of the last moments in which memory was read or written."""
    return _asked("memory_usage", device, lambda nvml, h: _rates(nvml, h).memory)


def temperature(device: object = None) -> int:
    """Degrees Celsius of the chip."""
    sensor = ctypes.c_int(_CORE)
    return _asked(
        "temperature", device, lambda nvml, h: nvml.number("nvmlDeviceGetTemperature", h, sensor)
    )


def power_draw(device: object = None) -> int:
    """Milliwatts."""
    return _asked("power_draw", device, lambda nvml, h: nvml.number("nvmlDeviceGetPowerUsage", h))


def clock_rate(device: object = None) -> int:
    """Megahertz of the multiprocessors."""
    clock = ctypes.c_int(_SM_CLOCK)
    return _asked(
        "clock_rate", device, lambda nvml, h: nvml.number("nvmlDeviceGetClockInfo", h, clock)
    )


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where a copy makes the host wait for a device (``item()``, ``cpu()``, ``cuda()``
    of what is not pinned ...): "default" (0) nothing, "warn" (1) a warning, "error" (2) an error.
    ``synchronize`` may always be called. For the calling rank."""
    number = MODES.index(debug_mode) if debug_mode in MODES else debug_mode
    if number.__class__ is not int or not 0 <= number < len(MODES):
        raise ConfigError(
            f"set_sync_debug_mode: invalid value of debug_mode, {debug_mode!r}: expected one of "
            "`default`, `warn`, `error` (0, 1, 2)"
        )
    set_mode(number)


def get_sync_debug_mode() -> int:
    """What was set, as a number."""
    return mode()


__all__ = [
    "clock_rate", "get_sync_debug_mode", "memory_usage", "power_draw", "set_sync_debug_mode",
    "temperature", "utilization",
]  # fmt: skip
