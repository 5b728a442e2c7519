"""Whether this machine has CUDA devices, found out without starting CUDA.

A process that has asked the CUDA runtime anything can fork no child that uses CUDA, so who only
looks (``cuda.is_available()``, the launcher) asks NVML, the library by which the
driver is managed. Knows no array.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from dataclasses import dataclass
from importlib.util import find_spec

_WHEELS = {"cupy-cuda12x": 12, "cupy-cuda13x": 13}


@dataclass(frozen=True)
class Presence:
    """``count``: usable devices; ``why``: what is missing and what to do, where there is none.
    ``sure``: False where only the runtime itself can tell."""

    count: int
    why: str = ""
    sure: bool = True


def visible(text: str | None, uuids: list[str]) -> int:
    """How many of the machine's devices, whose UUIDs are given in order, a process sees under
    ``CUDA_VISIBLE_DEVICES=text`` (None: not set). As the CUDA Programming Guide says, numbers and
    beginnings of UUIDs count up to the first that names no device, and nothing twice."""
    if text is None:
        return len(uuids)
    seen: list[str] = []
    for name in text.split(","):
        found = _named(name.strip(), uuids)
        if found is None:
            break
        if found in seen:
            return 0
        seen.append(found)
    return len(seen)


def _named(name: str, uuids: list[str]) -> str | None:
    if name.startswith("MIG-"):
        return name
    if name.startswith("GPU-"):
        hits = [u for u in uuids if u.startswith(name)]
        return hits[0] if len(hits) == 1 else None
    return uuids[int(name)] if name.isdigit() and int(name) < len(uuids) else None


def look() -> Presence:
    """What there is, now. Starts neither CUDA nor CuPy; takes below a millisecond where there is no
    driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Presence(
            0,
            "there is no NVIDIA driver here (libcuda.so.1 was not found); install one, or in a "
            "container pass the GPUs in (docker run --gpus all)",
        )
    if find_spec("cupy") is None:
        return Presence(0, missing_package())
    asked = _nvml()
    if asked is None:
        return Presence(0, sure=False)
    uuids, driver = asked
    built = built_for()
    if built and driver // 1000 < built:
        return Presence(0, old_driver(driver, built * 1000))
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = visible(text, uuids)
    return Presence(count) if count else Presence(0, no_device(len(uuids), text))


def missing_package() -> str:
    return (
        "the package CuPy is not installed; pip install 'disttrain[cuda13]' (or [cuda12], for "
        "drivers below 580)"
    )


def old_driver(driver: int, needed: int) -> str:
    """``driver``, ``needed``: versions of CUDA, as 12080 for 12.8."""
    return (
        f"the NVIDIA driver here is for CUDA {driver // 1000}.{driver % 1000 // 10}, and the CuPy "
        f"that is installed needs {needed // 1000}.{needed % 1000 // 10}; update the driver, or "
        f"install the packages for CUDA {driver // 1000}"
    )


def no_device(there: int, text: str | None) -> str:
    if there and text is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={text!r} hides all of the {there} devices of this machine; "
            "unset it, or name some of them"
        )
    return "the driver is here, but sees no NVIDIA device; see nvidia-smi"


def built_for() -> int | None:
    """The major version of CUDA that the installed CuPy is for; None where its name does not
    say."""
    for name, major in _WHEELS.items():
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    return None


def _nvml() -> tuple[list[str], int] | None:
    """UUIDs of all devices and the driver's version of CUDA; None where NVML does not say."""
    try:
        lib = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if lib.nvmlInit_v2() != 0:
        return None
    try:
        count, driver = ctypes.c_uint(), ctypes.c_int()
        if lib.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return None
        if lib.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(driver)):
            return None
        uuids = []
        for i in range(count.value):
            device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if lib.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)):
                return None
            if lib.nvmlDeviceGetUUID(device, text, 96):
                return None
            uuids.append(text.value.decode())
        return uuids, driver.value
    finally:
        lib.nvmlShutdown()
