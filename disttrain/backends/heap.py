"""What the C library keeps of the memory that arrays gave back.

A training step asks for the same arrays as the one before. glibc hands large blocks, and free
memory at the end of its heap beyond a few of them, back to the system, and every page then costs a
fault and is cleared anew in the next step: a fifth of the time of small models. Knows no arrays.
"""

from __future__ import annotations

import ctypes

from .. import settings

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 128 << 20  # free bytes at the end of the heap from which they are handed back
_APART = 32 << 20  # size of blocks that are handed back at once; glibc's own limit goes up to here
_CHOICES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep() -> bool:
    """Have freed memory kept for the next arrays; whether it now is. What the user chose in the
    environment stays; other C libraries have no such choice."""
    env = settings.environment()
    if any(name in env for name in _CHOICES) or "glibc.malloc" in env.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _APART)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
