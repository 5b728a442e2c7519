"""Builds ``nvml.c`` as ``libnvidia-ml.so.1``, so that NVML is asked through real ctypes."""

from __future__ import annotations

import functools
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


@functools.cache
def folder() -> tempfile.TemporaryDirectory:
    """A folder with the library, for LD_LIBRARY_PATH; ``.name`` is its path."""
    needs_compiler()
    made = tempfile.TemporaryDirectory(prefix="nvml-standin-")
    command = ["cc", "-shared", "-fPIC", "-o", f"{made.name}/libnvidia-ml.so.1", str(_SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return made


def environment(machine: str) -> dict[str, str]:
    """What makes a child process find the library, and that machine in it."""
    return {"LD_LIBRARY_PATH": folder().name, "NVML_MACHINE": machine}
