"""What CUDA's error codes mean to somebody who reads them: a sentence each, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import settings
from ...errors import DeviceError, DTypeError
from .presence import no_device, old_driver

ABSENT = "device 'cuda': not available here"
FORKED = (
    "Cannot re-initialize CUDA in forked subprocess: the parent had used CUDA before it forked. "
    "Use CUDA only after forking, or the start method 'spawn' (multiprocessing), or dtrun, whose "
    "ranks are forked before"
)
_INSUFFICIENT, _NO_DEVICE, _NOT_INITIALIZED = 35, 100, 3
_ADVICE = {
    2: "the device's memory is used up; see nvidia-smi for who uses it",
    46: "other processes use the devices exclusively (compute mode); see nvidia-smi",
    98: "a kernel was not compiled for this device",
    700: "a kernel read or wrote outside its memory; run with CUDA_LAUNCH_BLOCKING=1 to see which",
    719: "a kernel failed; run with CUDA_LAUNCH_BLOCKING=1 to see which",
    710: "a kernel asserted something that does not hold, such as an index outside its range; run "
    "with CUDA_LAUNCH_BLOCKING=1 to see which",
    802: "the devices' fabric is not ready; see whether nvidia-fabricmanager runs",
    803: "the driver's library and its kernel module are of different versions; reboot",
    804: "the compatibility package of CUDA does not serve this device",
}


def no_arrays_of(dtype: np.dtype) -> DTypeError:
    """Why CuPy made no array of ``dtype``."""
    return DTypeError(
        f"cuda: an array of dtype {np.dtype(dtype).name} was asked for; CuPy has none of it. "
        "Keep it on the cpu, or convert it to bfloat16 or uint8"
    )


def at_start(error: Any, runtime: Any) -> DeviceError:
    """Why there is no device, where the first question to the runtime failed with ``error``."""
    status = error.status
    if status == _INSUFFICIENT:
        driver = runtime.driverGetVersion()
        if not driver:
            why = "there is no NVIDIA driver here; install one"
        else:
            why = old_driver(driver, runtime.runtimeGetVersion())
    elif status == _NO_DEVICE:
        why = no_device(0, settings.VISIBLE_DEVICES.said())
    else:
        return explained(error)
    return DeviceError(f"{ABSENT}: {why}")


def explained(error: Any) -> DeviceError:
    """An error of the runtime, met while the host waited for a device or asked it something."""
    if error.status == _NOT_INITIALIZED:
        return DeviceError(f"cuda: {error}. {FORKED}")
    advice = _ADVICE.get(error.status)
    return DeviceError(f"cuda: {error}" + (f"; {advice}" if advice else ""))


_LOST = (700, 702, 710, 714, 715, 716, 717, 718, 719)  # the process cannot use the device any more


def launch_advice(status: int) -> str:
    """What to do about an error that the driver gives to a launch; empty where there is no more to
    say."""
    advice = _ADVICE.get(status, "")
    if status not in _LOST:
        return advice
    lost = (
        "it may be of any kernel launched before, and everything that this process asks of the "
        "device fails from now on: end it"
    )
    return f"{advice}; {lost}" if advice else lost
