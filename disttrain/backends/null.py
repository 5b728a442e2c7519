"""Arrays without data: a shape and an element type, for planning, tracing and the meta device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import CaptureError, DeviceError
from .array_kinds import ArrayKind


class NullArray(ArrayKind):
    """A shape and a numpy dtype. Whoever asks for a value gets a ``DeviceError``."""

    __slots__ = ("dtype", "shape")
    has_data = False
    place = ("meta", None)

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        out, step = [], self.itemsize
        for n in reversed(self.shape):
            out.append(step)
            step *= max(n, 1)
        return tuple(reversed(out))

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        """By the shape rule of ``prim``."""
        if prim.mutates:
            return tuple(arrays[i] for i in prim.mutates) if prim.multi else arrays[prim.mutates[0]]
        if prim.shape is None:
            raise CaptureError(
                f"{prim.name}: has no shape rule, because its result's shape depends on data; it "
                "cannot run on the meta device"
            )
        result = prim.shape(*arrays, **params)
        if prim.multi:
            return tuple(NullArray(s, d) for s, d in result)
        return NullArray(*result)

    def copy(self, order: str = "K") -> NullArray:
        return NullArray(self.shape, self.dtype)

    ones = zeros = copy

    def __repr__(self) -> str:
        return f"NullArray({self.shape}, {self.dtype})"

    def _no_data(self, *args: object, **kwargs: object) -> object:
        raise DeviceError(
            f"a tensor of shape {self.shape} on the meta device has no data to read or write; "
            "create it on 'cpu', or move the module with to_empty(device='cpu') and load values"
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __getitem__ = __setitem__ = _no_data
    item = tolist = tobytes = _no_data
