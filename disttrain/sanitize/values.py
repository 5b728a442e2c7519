"""Numbers of tensors, as checks look at them: of the host, or of this rank's part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.llvm.kernels.digest import digest
from ..core import Tensor
from ..distributed.tensor.spread import Spread

ndarray = np.ndarray


def array_of(t: Any) -> Any:
    """The numpy array of a tensor, or of this rank's part of it; None where there is none here."""
    array = t.__dict__.get("array") if isinstance(t, Tensor) else t
    if isinstance(array, Spread):
        array = array.local
    return array if array.__class__ is ndarray and not array.dtype.hasobject else None


def fetched(t: Any) -> Any:
    """As ``array_of``; one of a device is brought here."""
    array = array_of(t)
    if array is not None or not isinstance(t, Tensor) or t.is_meta or t.is_sparse:
        return array
    raw: Any = t.__dict__.get("array")
    raw = raw.local if isinstance(raw, Spread) else raw
    return raw.to_host() if hasattr(raw, "to_host") else None


def version_of(t: Tensor) -> int:
    """How often it was written to."""
    st = t._st
    return 0 if st is None else st.version


def is_finite(array: np.ndarray) -> bool:
    """Whether all numbers of an array of floats are finite; of large ones at memory speed."""
    if array.dtype.char not in "fd":
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
    if 0 in array.strides:  # the same numbers again and again
        array = array[tuple([slice(0, 1) if s == 0 else slice(None) for s in array.strides])]
    flat = array.ravel(order="K")
    total = np.dot(flat, flat)
    return bool(total - total == 0) or bool(np.isfinite(flat).all())


def is_near(array: np.ndarray) -> bool:
    """``is_finite`` of a part of a large array: rows or columns of nan are seen."""
    if array.size > 1 << 15 and array.flags.c_contiguous:
        return is_finite(array.reshape(-1)[:: array.size >> 13 | 1])
    return is_finite(array)


def is_zero(t: Any) -> bool:
    """Whether a tensor has nothing but zeros."""
    array = fetched(t)
    return array is not None and not array.any()


def hash_of(tensors: list) -> int:
    """One hash of several tensors."""
    total = 0
    for t in tensors:
        array = fetched(t)
        found = 0 if array is None else digest(array).hash
        total = (total * 0x9E3779B97F4A7C15 + found + 1) & ((1 << 64) - 1)
    return total


def sample(t: Tensor) -> np.ndarray | None:
    """A copy of the first numbers."""
    array = array_of(t)
    return None if array is None else array.reshape(-1)[:256].copy()


__all__ = [
    "array_of", "fetched", "hash_of", "is_finite", "is_near", "is_zero", "sample", "version_of",
]  # fmt: skip
