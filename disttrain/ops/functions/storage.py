"""The memory of a tensor as bytes and as a flat sequence of numbers (the public ``UntypedStorage``
and ``TypedStorage``), and what puts a tensor on other memory: ``set_`` and ``resize_``."""

from __future__ import annotations

import copy
import math
import operator
import os
from typing import Any, SupportsIndex

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.null import NullArray
from ...core import sharing
from ...core.annotations import Dims, Format, Scalar
from ...core.node import AccumulateGrad
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import device, located
from ...core.types.memory_format import (
    as_format,
    contiguous_format,
    inverse,
    order_of,
    preserve_format,
)
from ...core.writes import check_captured, check_inplace
from ...errors import AutogradError, ConfigError, DTypeError, ShapeError
from ..primitives import aliases as prim
from . import inplace
from .args import size as as_size
from .views.aliases import check_strided


class UntypedStorage:
    """The memory that a tensor lies in, as bytes."""

    def __init__(self, owner: Tensor) -> None:
        self.memory = prim.storage_of(owner.array)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file (the first ``nbytes``; 0: all), read when they are asked for.
        ``shared``: what is written goes to the file, which is made where there is none."""
        if shared and not os.path.exists(filename):
            with open(filename, "wb") as made:
                made.truncate(nbytes)
        mode: Any = "r+" if shared else "c"
        held = np.memmap(filename, np.uint8, mode, shape=(nbytes,) if nbytes else None)
        return cls(wrap(held.view(np.ndarray)))

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return prim.address_of(self.memory)

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self.memory.size

    size = __len__ = nbytes

    def resizable(self) -> bool:
        """Whether it can become larger or smaller: it cannot, as tensors keep what they lie in."""
        return False

    def resize_(self, nbytes: int) -> UntypedStorage:
        """For a size that it has; there is no other."""
        if nbytes != self.nbytes():
            raise ConfigError(
                f"Trying to resize storage that is not resizable: {self.nbytes()} bytes, {nbytes} "
                "wanted; use tensor.resize_, or let go of the tensor"
            )
        return self

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def _flat(self) -> Tensor:
        """The bytes as a tensor over the same memory."""
        return wrap(self.memory)

    def tolist(self) -> list[int]:
        """The bytes."""
        return self._flat().tolist()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._flat()[self._place(index)].item()
        part = copy.copy(self)
        part.memory = self._flat()[index].array
        return part

    def __setitem__(self, index: Any, value: int) -> None:
        self._flat()[index if isinstance(index, slice) else self._place(index)] = value

    def _place(self, index: SupportsIndex) -> int:
        at, n = operator.index(index), self.nbytes()
        if not -n <= at < n:
            raise IndexError(f"index {at} out of range for storage of size {n}")
        return at % n

    def fill_(self, value: int) -> UntypedStorage:
        """Set all bytes; returns self."""
        self._flat().fill_(value)
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Take the bytes of ``source``, which has as many; returns self."""
        if source.nbytes() != self.nbytes():
            raise ShapeError(
                f"copy_: a storage of {source.nbytes()} bytes given for one of {self.nbytes()}"
            )
        self._flat().copy_(source._flat(), non_blocking=non_blocking)
        return self

    def clone(self) -> UntypedStorage:
        """A copy, on the same device."""
        return UntypedStorage(self._flat().clone())

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return self.data_ptr()


def untyped_storage(input: Tensor) -> UntypedStorage:
    """The memory of ``input``: equal for tensors that share it."""
    return UntypedStorage(input)


class TypedStorage:
    """All elements of the memory that a tensor lies in, whatever its shape and strides. Writing to
    it writes to every tensor over that memory, unnoticed by autograd."""

    def __init__(self, owner: Tensor) -> None:
        self._like = owner.detach()

    def untyped(self) -> UntypedStorage | None:
        """The same as bytes; None on the meta device."""
        return None if self._like.is_meta else UntypedStorage(self._like)

    @property
    def dtype(self) -> dtypes.dtype:
        """The type of the elements."""
        return self._like.dtype

    @property
    def device(self) -> device:
        """Where it is."""
        return self._like.device

    def _flat(self) -> Tensor:
        if self._like.is_meta:
            return self._like.reshape(-1)
        array = self._like.array
        memory = prim.storage_of(array)
        return wrap(_seen(memory, array.dtype, (memory.size // array.itemsize,), (1,), 0))

    def size(self) -> int:
        """How many elements there are."""
        return self._flat().numel()

    __len__ = size

    def resizable(self) -> bool:
        """Whether it can become larger or smaller: it cannot."""
        return False

    def type(self) -> str:
        """Its name in PyTorch."""
        return f"{dtypes.dtype.namespace}.{self.dtype.title}Storage"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self.size() * self._like.itemsize

    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is no memory."""
        return 0 if self._like.is_meta else UntypedStorage(self._like).data_ptr()

    _cdata = property(data_ptr)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._like.itemsize

    def tolist(self) -> list:
        """The elements."""
        return self._flat().tolist()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        found = self._flat()[index]
        return found.item() if found.ndim == 0 else found.storage()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat()[index] = value

    def fill_(self, value: Scalar) -> TypedStorage:
        """Set all elements; returns self."""
        self._flat().fill_(value)
        return self

    def is_shared(self) -> bool:
        """Can other processes see it?"""
        return sharing.is_shared(self._like)

    def share_memory_(self) -> TypedStorage:
        """Let other processes see it; returns self."""
        sharing.share([self._like])
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple:
        return self.data_ptr(), self.dtype, self.size()

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist())
        return (
            f"{lines}[TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        )


def storage(input: Tensor) -> TypedStorage:
    """The memory of ``input``: equal for tensors that share it."""
    return TypedStorage(input)


def _seen(
    memory: DeviceArray | np.ndarray, kind: np.dtype, size: tuple, stride: tuple, offset: int
) -> Any:
    """An array over ``memory`` (bytes), laid out so (in elements)."""
    if isinstance(memory, DeviceArray):
        check_strided("set_", size, stride, offset, memory.size // kind.itemsize)
        item = kind.itemsize
        return memory.reseen(size, kind, offset * item, tuple(s * item for s in stride))
    cells = memory[: memory.size // kind.itemsize * kind.itemsize].view(kind)
    check_strided("set_", size, stride, offset, cells.size)
    steps = tuple(s * kind.itemsize for s in stride)
    return np.lib.stride_tricks.as_strided(cells[offset:], size, steps)


def _in_order(size: tuple) -> tuple:
    return tuple(math.prod([max(n, 1) for n in size[i + 1 :]]) for i in range(len(size)))


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Make this tensor refer to the memory of ``source``, a tensor or a storage; with ``size``,
    from element ``storage_offset`` of its storage on, laid out by ``stride``."""
    check_captured(self, "set_")
    if inplace.records(self):
        check_inplace(self, "set_")
    kind = self.meta()[1]
    if source is None:
        empty: Any = np.empty(0, kind)
        here = located(self.device)
        self.set_array(empty if here is None else here.take(empty))
    elif isinstance(source, Tensor) and size is None:
        if source.meta()[1] != kind:
            raise DTypeError(
                f"set_: a tensor of {source.dtype!r} given for one of {self.dtype!r}; the types "
                "must be equal"
            )
        self.set_array(source.array)
        self._st = source.storage_cell()
    else:
        memory = _bytes_of(source)
        size = (memory.size // kind.itemsize,) if size is None else tuple(size)
        stride = _in_order(size) if stride is None else tuple(stride)
        self.set_array(_seen(memory, kind, size, stride, storage_offset))
    if self._node.__class__ is AccumulateGrad:
        self._node = AccumulateGrad(self)  # gradients of what it was do not belong to what it is
    return self


def _bytes_of(source: object) -> Any:
    if isinstance(source, Tensor):
        return prim.storage_of(source.array)
    if isinstance(source, TypedStorage):
        source = source.untyped()
    if not isinstance(source, UntypedStorage):
        raise TypeError(f"set_: a Tensor or a storage is needed, {type(source).__name__} given")
    return source.memory


def resize_(self: Tensor, *sizes: Dims, memory_format: Format | None = None) -> Tensor:
    """Change the shape in place. The storage stays where it is large enough, and is replaced by a
    larger one, with the same elements in front, where it is not (new elements hold anything)."""
    check_captured(self, "resize_")
    if self.requires_grad:
        raise AutogradError("resize_: cannot resize variables that require grad; detach() first")
    target = as_size(sizes, "resize_")
    if self.is_meta or (tuple(self.shape) == target and memory_format is None):
        return self if not self.is_meta else _resized_meta(self, target)
    layout, kind, need = prim.layout_of(self.array), self.meta()[1], math.prod(target)
    memory, stride = prim.storage_of(self.array), _ordered(target, memory_format)
    if layout.first + need > layout.total:
        old, total = memory, (layout.first + need) * kind.itemsize
        if isinstance(old, DeviceArray):
            memory = old.grown(total)
        else:
            memory = np.zeros(total, np.uint8)
            memory[: old.size] = old
    self.set_array(_seen(memory, kind, target, stride, layout.first))
    return self


def _ordered(size: tuple, given: Any) -> tuple:
    """The strides of memory in a format."""
    layout = as_format("resize_", given, contiguous_format)
    if layout is preserve_format:
        raise ConfigError("resize_: Unsupported memory format Preserve; needed another one")
    order = order_of("resize_", layout, len(size))
    steps = _in_order(tuple(size[d] for d in order))
    return tuple(steps[i] for i in inverse(order))


def _resized_meta(self: Tensor, target: tuple) -> Tensor:
    self.set_array(NullArray(target, self.meta()[1]))
    return self
