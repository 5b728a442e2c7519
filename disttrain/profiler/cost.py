"""What an operation costs besides time: memory, multiplications and additions; and which lines of
the program asked for it."""

from __future__ import annotations

import functools
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..core.tensor import Tensor

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MOST = 64  # lines of a stack


def arrays(outs: Iterable[Tensor]) -> Iterator[tuple[int, int, Callable]]:
    """Of each new array among ``outs``: its bytes, its address, and what has a function called
    (with arguments) when it is given back."""
    for out in outs:
        array = out.__dict__.get("array")
        if isinstance(array, np.ndarray) and array.base is None and array.nbytes:
            address = array.__array_interface__["data"][0]
            yield array.nbytes, address, functools.partial(_watched, array)


def _watched(array: np.ndarray, then: Callable, *args: object) -> None:
    weakref.finalize(array, then, *args).atexit = False


def flops(name: str, args: tuple, out: Any) -> int:
    """Multiplications and additions of products and convolutions; elements of sums and products of
    elements; 0 of others."""
    shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
    first = out[0] if isinstance(out, tuple) else out
    size = math.prod(first.shape) if isinstance(first, Tensor) else 0
    if name in ("matmul", "linear") and len(shapes) > 1:
        return 2 * size * shapes[0][-1]
    if name == "conv" and len(shapes) > 1:
        return 2 * size * math.prod(shapes[1][1:])
    if name == "sparse_product":
        return 2 * shapes[0][0] * shapes[1][1]
    return size if name in ("add", "mul") else 0


def lines() -> list[str]:
    """The lines of the program that the calling thread is in, the innermost first, without those
    of this package."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < _MOST:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return found
