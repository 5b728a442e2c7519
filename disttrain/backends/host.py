"""Facts of this machine that kernels, ``disttrain doctor`` and the benchmarks ask for.

Every function only looks; none changes anything or loads LLVM.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor: ``features`` are the kernel's names (``avx2``, ``avx512f`` ...)."""

    model: str
    features: frozenset[str]
    machine: str


def cpu() -> Cpu:
    """What ``/proc/cpuinfo`` says of the first processor."""
    model, features = "unknown", frozenset[str]()
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            features = frozenset(value.split())
    return Cpu(model, features, platform.machine())


def cores() -> int:
    """Processors that this process may use (its affinity mask, not what the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes of main memory, or of this container's limit where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        return min(total, int(limit))
    except (OSError, ValueError):
        return total


def vector_bits(features: frozenset[str]) -> int:
    """Bits of the widest vector registers that libmvec has functions for."""
    return 512 if "avx512f" in features else 256 if "avx2" in features else 128


def libmvec() -> ctypes.CDLL | None:
    """glibc's vector functions (x86-64), where installed."""
    if platform.machine() != "x86_64":
        return None
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


def llvmlite_origin() -> str | None:
    """The folder of llvmlite where it is installed; finding it does not load it."""
    spec = importlib.util.find_spec("llvmlite")
    return os.path.dirname(spec.origin) if spec and spec.origin else None


def llvmlite_version() -> str:
    """What llvmlite says of its version, where it is installed; it is not loaded."""
    try:
        return Path(llvmlite_origin() or "", "_version.py").read_text()
    except OSError:
        return ""
