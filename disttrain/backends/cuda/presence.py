"""Whether this machine has CUDA devices, found out without starting CUDA.

A process that has asked the CUDA runtime anything can fork no child that uses CUDA, so who only
looks (``cuda.is_available()``, the launcher) asks NVML, the library by which the
driver is managed. Knows no array.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from dataclasses import dataclass
from importlib.util import find_spec

from ... import settings
from ...gpus import Machine, survey, visible

_WHEELS = {"cupy-cuda12x": 12, "cupy-cuda13x": 13}


@dataclass(frozen=True)
class Presence:
    """``count``: usable devices; ``why``: what is missing and what to do, where there is none.
    ``sure``: False where only the runtime itself can tell."""

    count: int
    why: str = ""
    sure: bool = True


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
    machine = _machine()
    if not machine.cuda:  # not from NVML: /proc may show more than CUDA can use
        return Presence(0, sure=False)
    built = built_for()
    if built and machine.cuda // 1000 < built:
        return Presence(0, old_driver(machine.cuda, built * 1000))
    text = settings.VISIBLE_DEVICES.said()
    count = len(visible(machine.cards, text))
    return Presence(count) if count else Presence(0, no_device(len(machine.cards), text))


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


@functools.cache
def _machine() -> Machine:
    """Asked once: it takes the library that manages the driver some milliseconds."""
    return survey()
