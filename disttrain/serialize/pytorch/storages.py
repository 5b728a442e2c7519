"""Tensors over the bytes of storages: each proved to lie in its own, those over one sharing it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray, Located
from ...backends.null import NullArray
from ...core import Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import device, located
from ...errors import SerializationError
from .opcodes import Refused, shown

Place = Callable[[Tensor, str], Any]  # (on the host, where it was saved) -> a device, or a Tensor
_MOST = 1 << 62
_DIMENSIONS = 64
_PUT_OFF: dict[str, Callable[[Any], Any]] = {"conj": np.conjugate, "neg": np.negative}


class Storage:
    """The bytes of one storage. ``kind``: of its elements; ``location``: where it was saved."""

    def __init__(self, key: str, raw: np.ndarray, kind: dtypes.dtype, location: str) -> None:
        # Elements are read where they lie: elsewhere only where that is between two of them.
        aligned = not raw.size or raw.__array_interface__["data"][0] % 16 == 0
        self.key, self.kind, self.location = key, kind, location
        self.raw = raw if aligned else raw.copy()
        self.used = False
        self.done: dict[str, Storage] = {}  # by what was put off
        self._most: int | None = None

    def truths(self) -> bool:
        """Whether its bytes are truth values; looked at once."""
        if self._most is None:
            self._most = int(self.raw.max(initial=0))
        return self._most <= 1


class Tensors:
    """Makes tensors over storages, and brings them to where they belong."""

    def __init__(self, place: Place, parameter: Callable[..., Tensor]) -> None:
        self._place, self._parameter = place, parameter
        self._bases: dict[tuple[str, str], Tensor] = {}
        self._uploaded: dict[tuple[str, int], DeviceArray] = {}

    def tensor(
        self, storage: Storage, offset: int, size: tuple, stride: tuple,
        requires_grad: bool = False, hooks: Any = None, metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        """Of the storage's own element type."""
        return self.of_type(
            storage, offset, size, stride, requires_grad, hooks, storage.kind, metadata
        )

    def of_type(
        self, storage: Storage, offset: int, size: tuple, stride: tuple, requires_grad: bool,
        hooks: Any, kind: dtypes.dtype, metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        """Of any element type. ``metadata``: what of it is put off in PyTorch, and done here."""
        if not isinstance(storage, Storage) or not isinstance(kind, dtypes.dtype):
            raise TypeError("a tensor over no storage")
        if metadata and (type(metadata) is not dict or not metadata.keys() <= _PUT_OFF.keys()):
            raise TypeError(f"a tensor of {shown(metadata)}")
        storage.used = True
        for name in filter((metadata or {}).get, _PUT_OFF):
            storage = self._done(storage, kind, name)
        out = self._at(storage, _array(storage, kind.np, offset, tuple(size), tuple(stride)))
        return out.requires_grad_() if requires_grad is True else out

    def _done(self, storage: Storage, kind: dtypes.dtype, name: str) -> Storage:
        """What was put off, done once for a storage: a tensor may repeat its elements without
        end."""
        if kind is not storage.kind:
            raise TypeError(f"{name} of a storage of {storage.kind!r} as {kind!r}")
        if (done := storage.done.get(name)) is None:
            raw = _PUT_OFF[name](storage.raw.view(kind.np)).view(np.uint8)
            done = Storage(f"{storage.key} {name}", raw, kind, storage.location)
            storage.done[name] = done
        return done

    def parameter(self, data: Tensor, requires_grad: bool = True, *rest: Any) -> Tensor:
        """A parameter over a tensor. ``rest``: hooks, and a state that must be empty."""
        if not isinstance(data, Tensor):
            raise TypeError("a parameter over no tensor")
        if any(rest[1:]):
            raise Refused("a parameter with attributes; save its values, and these beside it")
        return self._parameter(data, bool(requires_grad))

    def meta(self, kind: dtypes.dtype, size: tuple, stride: tuple, requires_grad: bool) -> Tensor:
        """A tensor without data."""
        shape, _ = _numbers(tuple(size)), _numbers(tuple(stride))
        if len(shape) > _DIMENSIONS:
            raise SerializationError(f"{len(shape)} dimensions; at most {_DIMENSIONS}")
        out = wrap(NullArray(shape, kind.np))
        return out.requires_grad_() if requires_grad is True else out

    def bytes_of(self, storage: Storage) -> Any:
        """The storage by itself."""
        storage.used = True
        flat = _array(
            storage, storage.kind.np, 0, (storage.raw.size // storage.kind.itemsize,), (1,)
        )
        return self._at(storage, flat).untyped_storage()

    def _at(self, storage: Storage, array: np.ndarray) -> Tensor:
        """A tensor over part of a storage; those over one share memory and their version count."""
        storage.used = True
        where: Tensor | device = self._place(wrap(array), storage.location)
        if isinstance(where, Tensor):
            return where
        there = located(where)
        if there is None:
            out = wrap(array if where.type == "cpu" else NullArray(array.shape, array.dtype))
        else:
            out = wrap(self._moved(storage, array, there))
        base = self._bases.setdefault((str(where), storage.key), out)
        out._st = base.storage_cell()
        out._gen = out._st.gen
        return out

    def _moved(self, storage: Storage, array: np.ndarray, there: Located) -> DeviceArray:
        """On an accelerator, where a storage that several lie in travels once."""
        if not array.size:
            return there.take(array)
        key = storage.key, there.index
        if key not in self._uploaded:
            self._uploaded[key] = there.take(np.ascontiguousarray(storage.raw))
        begin = array.__array_interface__["data"][0] - storage.raw.__array_interface__["data"][0]
        return self._uploaded[key].reseen(array.shape, array.dtype, begin, array.strides)


def _numbers(given: tuple) -> tuple[int, ...]:
    if not all(type(n) is int and 0 <= n < _MOST for n in given):
        raise SerializationError(f"sizes, strides or an offset of {shown(given)}")
    return given


def _array(storage: Storage, kind: np.dtype, offset: int, size: tuple, stride: tuple) -> np.ndarray:
    """The elements of a tensor, proved to lie in the storage."""
    _numbers((offset, *size, *stride))
    if len(size) != len(stride) or len(size) > _DIMENSIONS:
        raise SerializationError(f"sizes {shown(size)} with strides {shown(stride)}")
    if math.prod(n for n in size if n) >= _MOST:
        raise SerializationError(f"a tensor of sizes {size!r:.80}")
    if 0 in size:
        return np.empty(size, kind)
    last = offset + sum(s * (n - 1) for n, s in zip(size, stride, strict=True))
    have = storage.raw.size // kind.itemsize
    if last >= have:
        raise SerializationError(
            f"a tensor of sizes {size!r:.80} reaches to element {last} of storage "
            f"{storage.key!r:.40}, which has {have}"
        )
    if kind == np.bool_ and not storage.truths():
        raise SerializationError(f"storage {storage.key!r:.40}: truth values other than 0 and 1")
    steps = tuple(s * kind.itemsize for s in stride)
    return np.ndarray(size, kind, storage.raw, offset * kind.itemsize, steps)
