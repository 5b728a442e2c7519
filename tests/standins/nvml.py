"""Builds ``nvml.c`` as ``libnvidia-ml.so.1``, so that NVML is asked through real ctypes."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")


def needs_compiler() -> None:
    """Skips the test where nothing can be compiled."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")


def _remove(made: str, maker: int) -> None:
    """Not at the end of a child that a test has forked: others still ask the library."""
    if os.getpid() == maker:
        shutil.rmtree(made, ignore_errors=True)


@functools.cache
def folder() -> str:
    """A folder with the library, for LD_LIBRARY_PATH."""
    needs_compiler()
    made = tempfile.mkdtemp(prefix="nvml-standin-")
    atexit.register(_remove, made, os.getpid())
    command = ["cc", "-shared", "-fPIC", "-o", f"{made}/libnvidia-ml.so.1", str(_SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return made


def environment(machine: str) -> dict[str, str]:
    """What makes a child process find the library, and that machine in it."""
    return {"LD_LIBRARY_PATH": folder(), "NVML_MACHINE": machine}
