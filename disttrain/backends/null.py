"""Arrays without data: a shape and an element type, for planning, tracing and the meta device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import DeviceError


class NullArray:
    """A shape and a numpy dtype. Whoever asks for a value gets a ``DeviceError``."""

    __slots__ = ("dtype", "shape")
    __array_ufunc__ = None
    __array_priority__ = 1000

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        out, step = [], self.itemsize
        for n in reversed(self.shape):
            out.append(step)
            step *= max(n, 1)
        return tuple(reversed(out))

    def __repr__(self) -> str:
        return f"NullArray({self.shape}, {self.dtype})"

    def _no_data(self, *args: object, **kwargs: object) -> object:
        raise DeviceError(
            f"a tensor of shape {self.shape} on the meta device has no data to read or write; "
            "create it on 'cpu', or move the module with to_empty(device='cpu') and load values"
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __getitem__ = __setitem__ = _no_data
    item = tolist = tobytes = _no_data
