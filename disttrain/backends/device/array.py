"""The kind of array that lies on a device: a raw array of a platform, and how primitives run on it.

By default a primitive's own forward runs on the raw arrays, whose module answers numpy's functions;
``Primitive.on_device`` stands in where that would not serve. Knows no primitive and no Tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DeviceError
from ..kinds import ArrayKind
from .platform import Platform


class DeviceArray(ArrayKind):
    """``data``: a raw array of ``platform``; ``index``: the number of its device."""

    __slots__ = ("data", "index", "platform")
    weight = 1

    def __init__(self, data: Any, platform: Platform, index: int) -> None:
        self.data, self.platform, self.index = data, platform, index

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.data.shape

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return self.data.dtype

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def itemsize(self) -> int:
        return self.data.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.data.size * self.data.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return self.data.strides

    def like(self, data: Any) -> DeviceArray:
        """``data``, a raw array of the same device, as an array of this kind."""
        return DeviceArray(data, self.platform, self.index)

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        raws = [self._raw(prim, arrays, i) for i in range(len(arrays))]
        forward = prim.on_device
        if forward is not None:
            result = forward(self.platform, *raws, **params)
        else:
            result = prim.forward(*raws, **params)
        if prim.multi:
            return tuple([self.like(r) for r in result])
        return self.like(result)

    def _raw(self, prim: Any, arrays: Any, i: int) -> Any:
        a = arrays[i]
        if a.__class__ is DeviceArray:
            if a.index == self.index and a.platform is self.platform:
                return a.data
        elif not isinstance(a, np.ndarray):
            return a
        elif a.ndim == 0:
            return a[()]
        raise DeviceError(_mixed(prim, arrays, i, self))

    def ones(self) -> DeviceArray:
        return self.like(self.platform.xp.ones(self.shape, self.dtype))

    def zeros(self) -> DeviceArray:
        return self.like(self.platform.xp.zeros(self.shape, self.dtype))

    def copy(self, order: str = "K") -> DeviceArray:
        return self.like(self.data.copy(order=order))

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, {self.platform.kind}:{self.index})"

    def _stays(self, *args: object, **kwargs: object) -> Any:
        raise DeviceError(
            f"an array of shape {self.shape} on {self.platform.kind}:{self.index} was used as one "
            "of the host's; copy it there with .cpu() first"
        )

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = __getitem__ = _stays
    __setitem__ = tobytes = _stays


def _mixed(prim: Any, arrays: Any, i: int, first: DeviceArray) -> str:
    def place(a: Any) -> str:
        return f"{a.platform.kind}:{a.index}" if isinstance(a, DeviceArray) else "cpu"

    names = prim.args or [f"argument {k}" for k in range(len(arrays))]
    at = next(k for k, a in enumerate(arrays) if a is first)
    return (
        f"{prim.name.strip('_')}: all tensors must be on one device: {names[at]} (shape "
        f"{list(first.shape)}) is on {place(first)}, {names[i]} (shape {list(arrays[i].shape)}) on "
        f"{place(arrays[i])}; move one with .to()"
    )
