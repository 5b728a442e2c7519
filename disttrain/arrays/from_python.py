"""Arrays and tensors of what a program writes: numbers, texts, nested sequences of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..ops.api import tensor


def array_of(value: Any) -> tuple[np.ndarray, bool]:
    """The array of ``value`` (texts as bytes), and whether its type is that of Python's numbers,
    and no array's own."""
    array, natural = _array(value), not _typed(value)
    if array.dtype.kind in "SUO":
        out = np.empty(array.size, object)
        out[:] = [
            x.encode() if isinstance(x, str) else bytes(x) for x in array.reshape(-1).tolist()
        ]
        return out.reshape(array.shape), natural
    if not natural and isinstance(value, (list, tuple)) and isinstance(value[0], np.generic):
        array = array.astype(value[0].dtype)
    return array, natural


def fits_32(array: np.ndarray) -> bool:
    """Whether all integers have at most 32 bits."""
    return not array.size or bool(-(2**31) <= array.min() and array.max() < 2**31)


_NARROW = {"int64": "int32", "float64": "float32"}  # of Python's numbers, where they fit
_REAL = ("float16", "float32", "float64")


@functools.cache
def _name(kind: np.dtype) -> str:
    return kind.name  # (which numpy makes anew each time)


def goes(own: str, kind: str) -> bool:
    """Whether Python's numbers of the type ``own`` may be taken for ones of ``kind``."""
    if own == "bool":
        return kind in (*_REAL, "int32", "int64")
    if "int" in own:
        return kind != "bool"
    return "complex" in kind or ("float" in own and "float" in kind)


def type_for(array: np.ndarray, natural: bool, kind: str | None, strict: bool) -> str | None:
    """The type for numbers of ``array_of``: ``kind``, where they go there, else their own, or of
    Python's numbers the one of 32 bits that holds them. None: ``strict``, and they do not go."""
    own = _name(array.dtype)
    if natural and (own != "int64" or fits_32(array)):
        own = _NARROW.get(own, own)
    if kind is None or kind == own:
        return own
    if not natural or not array.size or goes(own, kind):
        return kind
    return None if strict else own


def made(value: Any, kind: str | None = None, strict: bool = False) -> Any:
    """The tensor of ``value``, or the array of its texts; None where it does not go into the type
    ``kind`` ("string": texts)."""
    array, natural = array_of(value)
    if array.dtype.kind == "O":
        return array if kind in (None, "string") else None
    name = type_for(array, natural, kind, strict)
    return None if name is None or name == "string" else tensor(array.astype(name))


def _typed(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and len(value):
        value = value[0]
    return hasattr(value, "dtype") and not isinstance(value, (list, tuple))


def _array(value: Any) -> np.ndarray:
    said = "(None)" if value is None else f"({value!r})"
    if value is not None:
        try:
            array = np.asarray(value)
        except ValueError:
            raise ValueError("Can't convert non-rectangular Python sequence to Tensor.") from None
        if array.dtype.kind == "U" and isinstance(value, (list, tuple)) and _is_mixed(value):
            raise ValueError("Can't convert Python sequence with mixed types to Tensor.")
        if array.dtype.kind in "SU":  # (whose numpy arrays lose zeros at the end)
            array = np.asarray(value, object)
        if array.dtype.kind != "O" or all(isinstance(x, (str, bytes)) for x in array.flat):
            return array
    raise ValueError(
        f"Attempt to convert a value {said} with an unsupported type ({type(value)}) to a Tensor."
    )


def _is_mixed(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_mixed, value))
    return not isinstance(value, (str, bytes, np.ndarray))
