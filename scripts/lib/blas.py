"""Say which BLAS kernels the numerical tests should be run with besides this machine's own.

OpenBLAS, which numpy brings along, has a set for each kind of processor, and they add in different
orders. ``OPENBLAS_CORETYPE`` takes another one: Haswell (AVX2) where that is not what it would be
anyway, else Prescott, which every x86-64 has. Prints nothing where there is no such choice.
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import numpy as np

ALIKE = ("Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids")  # all have AVX2
NAMES = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")


def own() -> str:
    """The kernels that numpy takes here; empty where that cannot be told."""
    for library in sorted(Path(np.__file__).parents[1].glob("numpy.libs/lib*openblas*")):
        blas = ctypes.CDLL(str(library))
        for name in NAMES:
            if hasattr(blas, name):
                ask = getattr(blas, name)
                ask.restype = ctypes.c_char_p
                return ask().decode()
    return ""


def other() -> str:
    """Others that this machine can run."""
    if platform.machine() != "x86_64":
        return ""
    return "Haswell" if own() in ALIKE[2:] else "Prescott" if own() else ""


if __name__ == "__main__":
    print(other())
