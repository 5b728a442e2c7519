"""How many ranks ``--nproc-per-node`` means, and which device each of them has.

Devices are counted by ``disttrain/gpus.py`` in a process of its own: nothing here loads CUDA, nor
numpy, whose number of threads depends on the number of ranks.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys

from ..clusters.files import path_of

_NOT_INITIALIZED = 3  # of CUresult
BINDINGS = ("none", "node", "socket", "exclusive", "core-complex")
SECONDS = 30.0
SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version")


def add_flags(p: argparse.ArgumentParser) -> None:
    """The flags that say which device and cores a rank has."""
    p.add_argument(
        "--numa-binding", "--binding", default="none", choices=BINDINGS,
        help="run each rank on cores near its GPU: those of its NUMA node or socket, a part of "
        "the node that no other rank has, or those that share a cache",
    )  # fmt: skip
    p.add_argument(
        "--virtual-local-rank",
        action="store_true",
        help="show each rank its own GPU alone, as device 0; LOCAL_RANK is 0",
    )


def num_ranks(text: str, virtual: bool = False) -> int:
    """The number that ``text`` means; a ``ValueError`` says what is needed. As with torchrun,
    "gpu" is the number of visible devices, "cpu" that of usable cores, and "auto" the first where
    there are devices, else the second."""
    if text == "gpu":
        return _num_gpus(virtual)
    if text == "auto" and any(map(os.path.exists, SIGNS)):
        try:
            return _num_gpus(virtual)
        except ValueError:  # a driver without devices
            return len(os.sched_getaffinity(0))
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    try:
        n = int(text)
    except ValueError:
        raise ValueError(f"{text}: a number, auto, cpu or gpu is needed") from None
    if n < 1:
        raise ValueError(f"{n}: at least one rank is needed")
    return n


def _num_gpus(virtual: bool) -> int:
    import subprocess  # which a start without GPUs need not load

    what = "count-each" if virtual else "count"
    words = [sys.executable, "-I", "-S", path_of("disttrain.gpus"), what]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True)
        said = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        said = {"count": 0, "why": f"the driver does not answer within {SECONDS:g} s"}
    except subprocess.CalledProcessError as error:
        said = {"count": 0, "why": f"counting them ended with code {error.returncode}"}
    if said["count"]:
        return int(said["count"])
    raise ValueError(
        f"gpu: no device is visible here ({said['why']}); `disttrain doctor` says what is missing; "
        "give a number, or cpu"
    )


def cuda_is_initialised() -> bool:
    """Whether somebody in this process has initialised CUDA, which no forked process can use then.
    Loads nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    number = ctypes.c_int()
    return driver.cuDeviceGetCount(ctypes.byref(number)) != _NOT_INITIALIZED
