"""The kind of array that lies on a device: a raw array of a platform, and how primitives run on it.

By default a primitive's own forward runs on the raw arrays, whose module answers numpy's functions;
``Primitive.on_device`` stands in where that would not serve. Knows no primitive and no Tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...errors import DeviceError
from ...trace import call_site
from ..array_kinds import ArrayKind
from .platform import Platform, Stream
from .synchronization import waits


class Located:
    """A device of a platform. In a ``with`` block it is the thread's current one."""

    __slots__ = ("_before", "index", "platform")

    def __init__(self, platform: Platform, index: int) -> None:
        self.platform, self.index = platform, index

    def __enter__(self) -> Located:
        self._before = self.platform.current()
        if self._before != self.index:
            self.platform.use(self.index)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before != self.index:
            self.platform.use(self._before)

    def make(self, fn: Callable[[Any], Any]) -> DeviceArray:
        """The array that ``fn``, given the array module, makes here."""
        with self:
            return DeviceArray(fn(self.platform.xp), self.platform, self.index)

    def hold(self, raw: RawArray) -> DeviceArray:
        """A raw array of this device, as an array."""
        return DeviceArray(raw, self.platform, self.index)

    def take(self, array: Any, non_blocking: bool = False) -> DeviceArray:
        """The values of numpy's array, or of one on any device, here; laid out alike."""
        order = _memory_order(array)
        if isinstance(array, DeviceArray):
            with array.here():
                raw = array.data if order is None else array.data.transpose(order)
            moved = _over(array, raw, self, non_blocking)
        else:
            raw = array if order is None else array.transpose(order)
            if not non_blocking:
                waits("a copy to the device")
            moved = self.platform.upload(raw, self.index, non_blocking)
        if order is not None:
            with self:
                moved = moved.transpose(np.argsort(order).tolist())
        return DeviceArray(moved, self.platform, self.index)


class DeviceArray(ArrayKind):
    """``data``: a raw array of ``platform``; ``index``: the number of its device."""

    __slots__ = ("data", "index", "platform")
    weight = 1
    rules_on_tensors = True

    def __init__(self, data: Any, platform: Platform, index: int) -> None:
        self.data, self.platform, self.index = data, platform, index

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.data.shape

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.data.strides

    @property
    def flags(self) -> Any:
        """``c_contiguous`` and its kin."""
        return self.data.flags

    @property
    def place(self) -> tuple[str, int | None]:  # type: ignore[override]
        return self.platform.kind, self.index

    @property
    def address(self) -> int:
        """Where it lies in the device's memory."""
        return self.platform.address(self.data)

    @property
    def memory(self) -> Any:
        """The piece of memory that it lies in: one object for all arrays there."""
        return self.data.data.mem

    @property
    def stream(self) -> Stream | None:
        """Where the calling thread's work on its device goes; None where nobody has told so."""
        return self.platform.current_stream(self.index) if self.platform.sided else None

    def here(self) -> Located:
        """The device that it lies on."""
        return Located(self.platform, self.index)

    def like(self, data: object) -> DeviceArray:
        """``data``, a raw array of the same device, as an array of this kind."""
        return DeviceArray(data, self.platform, self.index)

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        if prim.kinds:
            return prim.forward(*arrays, **params)
        platform = self.platform
        raws = [
            a.data if a.__class__ is DeviceArray and a.index == self.index
            and a.platform is platform else self._raw(prim, arrays, i)
            for i, a in enumerate(arrays)
        ]  # fmt: skip
        before = platform.current()
        if before != self.index:
            platform.sided = True
            platform.use(self.index)
        try:
            forward = prim.on_device
            if forward is not None:
                result = forward(platform, *raws, **params)
            else:
                result = prim.forward(*raws, **params)
        finally:
            if before != self.index:
                platform.use(before)
        if prim.mutates:  # what was written to
            first, *_ = written = [arrays[i] for i in prim.mutates]
            return tuple(written) if prim.multi else first
        if prim.multi:
            return tuple([self._result(prim, r) for r in result])
        return self._result(prim, result)

    def _result(self, prim: Any, result: RawArray) -> DeviceArray:
        if result.__class__ is not self.platform.array_type:
            raise DeviceError(
                f"{prim.name.strip('_')}: has no form for arrays on {self.platform.kind}: it gave "
                f"{type(result).__name__}; move its arguments with .cpu()"
            )
        return DeviceArray(result, self.platform, self.index)

    def _raw(self, prim: Any, arrays: list, i: int) -> Any:
        """What stands for argument ``i``, which is no array of this device."""
        a = arrays[i]
        if isinstance(a, np.ndarray):
            if a.ndim == 0:  # goes along as a number; counters of an update are written to
                return a if i in prim.mutates else a[()]
        elif not isinstance(a, ArrayKind):
            return a
        raise DeviceError(_mixed(prim, arrays, i, self))

    def ones(self) -> DeviceArray:
        return self.here().make(lambda xp: xp.ones(self.shape, self.dtype))

    def zeros(self) -> DeviceArray:
        return self.here().make(lambda xp: xp.zeros(self.shape, self.dtype))

    def blank(self, shape: tuple, dtype: np.dtype) -> DeviceArray:
        return self.here().make(lambda xp: xp.zeros(shape, dtype))

    def view(self, dtype: object) -> DeviceArray:
        """The bytes as another type."""
        with self.here():
            return self.like(self.data.view(dtype))

    def copy(self, order: str = "K") -> DeviceArray:
        with self.here():
            return self.like(self.data.copy(order=order))

    def whole(self) -> np.ndarray:
        """The values on the host."""
        return self.to_host()

    def fill(self, value: object) -> None:
        """Write one number everywhere."""
        with self.here():
            self.data.fill(value)

    def to_host(self, non_blocking: bool = False) -> np.ndarray:
        """The values as numpy's array, laid out alike. With ``non_blocking`` in pinned memory,
        where they are once the device's stream has come there."""
        order = _memory_order(self)
        with self.here() as there:
            raw = self.data if order is None else self.data.transpose(order)
            if non_blocking:
                host = there.platform.pinned(raw.shape, raw.dtype)
                there.platform.download(raw, host, True)
            else:
                waits("a copy to the host")
                host = there.platform.download(raw)
        return host if order is None else host.transpose(np.argsort(order))

    def grown(self, size: int) -> DeviceArray:
        """A row of ``size`` elements that begins with those of this row."""
        more = self.blank((size,), self.dtype)
        with self.here():
            more.data[: self.size] = self.data
        return more

    def reseen(self, shape: tuple, dtype: Any, offset: int, strides: tuple) -> DeviceArray:
        """Other elements over this memory, which is a row of bytes; ``offset`` and ``strides`` in
        bytes."""
        item = np.dtype(dtype).itemsize
        with self.here() as there:
            cells = self.data[offset : offset + (self.size - offset) // item * item].view(dtype)
            seen = there.platform.xp.lib.stride_tricks.as_strided(cells, shape, strides)
        return self.like(seen)

    def row(self) -> DeviceArray:
        """The whole memory that it lies in, as one dimension of bytes."""
        with self.here():
            return self.like(self.root().data.ravel(order="K").view(np.uint8))

    def root(self) -> DeviceArray:
        """The array that owns the memory."""
        owner = self.platform.owner(self.data)
        return self if owner is self.data else self.like(owner)

    def item(self) -> Any:
        """The number of an array of one element."""
        return self.to_host().item()

    def beside(self, array: object) -> Any:
        return self.here().take(array) if isinstance(array, np.ndarray) else array

    def together(self, others: Any) -> list | None:
        raws = [self.data]
        for other in others:
            if other.__class__ is DeviceArray:
                if other.index != self.index or other.platform is not self.platform:
                    return None
                other = other.data
            elif other.size != 1:
                return None
            raws.append(other)
        return raws

    def taken_in(self, t: object) -> Any:
        return t

    def owned(self, alone: bool) -> DeviceArray:
        data = self.data
        own = alone and data.base is None and data.flags.c_contiguous
        return self if own else self.copy("C")

    def placed(self, t: object) -> Any:
        return t

    def shares_with(self, other: object) -> bool:
        if other.__class__ is not DeviceArray:
            return False
        return roots_are_one(self.data, other.data)

    def add_in_place(self, g: Any) -> None:
        with self.here() as there:
            there.platform.xp.add(self.data, g.data, out=self.data)

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, {self.platform.kind}:{self.index})"

    def _stays(self, *args: object, **kwargs: object) -> Any:
        raise DeviceError(
            f"an array of shape {self.shape} on {self.platform.kind}:{self.index} was used as one "
            "of the host's; copy it there with .cpu() first"
        )

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = __getitem__ = _stays
    __setitem__ = tobytes = _stays


def roots_are_one(a: RawArray, b: RawArray) -> bool:
    """Whether two raw arrays of one device lie in the same piece of memory. (Their bases do not
    tell: CuPy's ``as_strided`` names none.)"""
    return a is b or (a.size > 0 and b.size > 0 and a.data.mem is b.data.mem)


class Hosted:
    """Arrays of devices as numpy's; those that share memory do so here, too."""

    def __init__(self) -> None:
        self.known: dict[tuple, tuple[Any, np.ndarray]] = {}  # by place: the owner, its bytes

    def view(self, array: DeviceArray) -> np.ndarray:
        """The values of ``array``."""
        if not array.size:
            return np.empty(array.shape, array.dtype)
        root = array.root()
        key = *root.place, root.address
        if key not in self.known:
            with root.here() as there:
                row = root.data.ravel(order="K")
                raw = np.ascontiguousarray(there.platform.download(row)).view(np.uint8)
            self.known[key] = root.data, raw
        raw, offset = self.known[key][1], array.address - root.address
        return np.ndarray(array.shape, array.dtype, raw, offset, array.strides)


def _over(array: DeviceArray, raw: Any, to: Located, non_blocking: bool) -> Any:
    """The values of ``raw``, a raw array of ``array``'s device, on ``to``."""
    if array.platform is to.platform:
        if array.index != to.index:
            return to.platform.move(raw, to.index)
        with to:
            return raw.copy()
    host = array.platform.download(raw)
    return to.platform.upload(host, to.index, non_blocking)


def _memory_order(array: DeviceArray | np.ndarray) -> list[int] | None:
    """The axes as they follow each other in memory, where the array lies dense but not in the
    usual order; None otherwise."""
    shape, strides = array.shape, array.strides
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], shape[i] != 1, i))
    if order == list(range(len(shape))):
        return None
    step = array.itemsize
    for i in reversed(order):
        if shape[i] != 1 and strides[i] != step:
            return None
        step *= shape[i]
    return order


def _mixed(prim: Any, arrays: list, i: int, first: DeviceArray) -> str:
    def place(a: DeviceArray | np.ndarray) -> str:
        kind, index = a.place if isinstance(a, ArrayKind) else ("cpu", None)
        return kind if index is None else f"{kind}:{index}"

    names = prim.args or [f"argument {k}" for k in range(len(arrays))]
    at = next(k for k, a in enumerate(arrays) if a is first)
    return (
        f"{prim.name.strip('_')}: Expected all tensors to be on the same device: {names[at]} "
        f"(shape {list(first.shape)}) is on {place(first)}, {names[i]} (shape "
        f"{list(arrays[i].shape)}) on {place(arrays[i])}, at {call_site()}; move one with .to()"
    )
