"""``save(..., format="torch")``: what PyTorch's ``torch.load(weights_only=True)`` reads.

The pickle is written operation by operation: containers, numbers, texts, and tensors as references
to storages. What is stored once and who lies in it decides ``sharing``, as in the other format.
"""

from __future__ import annotations

import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray, Hosted
from ...core import Size, Tensor
from ...core.types import dtypes
from ...core.types.device import device
from ...errors import SerializationError
from ..sharing import View, plan
from .reading import KINDS

ALIGNED = 64  # bytes, as PyTorch's writer does
_HEAD = 30  # bytes of a record's head, before its name
_ZIP64 = 20  # bytes that a record of 4 GiB and more has there besides
_FOLDER = "archive"
_STORAGES = {kind: f"{name}Storage" for name, kind in KINDS.items() if name != "Untyped"}
_NAMES = {kind.np: kind for kind in (getattr(dtypes, n) for n in
          "uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
          "float8_e8m0fnu".split())} | {
          kind.np: kind for kind in _STORAGES}  # fmt: skip
Key = tuple[str, int]


class _Text:
    """A pickle (protocol 2) in the making. Values that were met are referred to by number."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self._memo: dict[Any, int] = {}

    def op(self, code: bytes, layout: str = "", *values: Any) -> None:
        self.out += code + (struct.pack(layout, *values) if layout else b"")

    def again(self, key: Any) -> bool:
        """Whether what bears that key has been written: then it is referred to."""
        number = self._memo.get(key)
        if number is None:
            return False
        if number < 256:
            self.op(b"h", "<B", number)
        else:
            self.op(b"j", "<I", number)
        return True

    def keep(self, key: Any) -> None:
        """Number what lies on top of the stack."""
        number = self._memo[key] = len(self._memo)
        if number < 256:
            self.op(b"q", "<B", number)
        else:
            self.op(b"r", "<I", number)

    def name(self, module: str, name: str) -> None:
        if not self.again((module, name)):
            self.out += b"c" + f"{module}\n{name}\n".encode()
            self.keep((module, name))

    def text(self, value: str) -> None:
        if not self.again(("text", value)):
            raw = value.encode("utf-8", "surrogatepass")
            self.op(b"X", "<I", len(raw))
            self.out += raw
            self.keep(("text", value))

    def number(self, value: int) -> None:
        if 0 <= value < 256:
            self.op(b"K", "<B", value)
        elif 0 <= value < 65536:
            self.op(b"M", "<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.op(b"J", "<i", value)
        else:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            if len(raw) > 255:
                raise SerializationError(f"a number of {len(raw)} bytes; PyTorch takes 255")
            self.op(b"\x8a", "<B", len(raw))
            self.out += raw

    def end_tuple(self, count: int) -> None:
        """Behind the values, with a mark before them where they are more than three."""
        self.out += (b")", b"\x85", b"\x86", b"\x87")[count] if count < 4 else b"t"


class Writer:
    """The pickle of a value, and the arrays that it refers to."""

    def __init__(self, obj: Any, parameter: type) -> None:
        self._parameter, self._hosted = parameter, Hosted()
        self._arrays: dict[str, np.ndarray] = {}
        self._tensors: dict[int, tuple[Tensor, str]] = {}  # by id, which live as long
        self._met: dict[int, Any] = {}
        self._collect(obj)
        what = plan(self._arrays)
        self._views = what.views
        self.stored = {name: np.ascontiguousarray(array) for name, array in what.stored.items()}
        self._keys = {name: str(i) for i, name in enumerate(self.stored)}
        self._typed = self._find_types()
        self._text = _Text()
        self._value(obj, "obj")
        self._text.out += b"."

    @property
    def text(self) -> bytes:
        return bytes(self._text.out)

    # --- what there is to store ------------------------------------------------------------------

    def _collect(self, obj: Any) -> None:
        stack = [obj]
        while stack:
            node = stack.pop()
            if isinstance(node, Tensor):
                if id(node) not in self._tensors:
                    name = str(len(self._tensors))
                    self._tensors[id(node)] = node, name
                    self._arrays[name] = self._on_host(node)
            elif isinstance(node, (dict, list, tuple, set)) and id(node) not in self._met:
                self._met[id(node)] = node
                stack.extend(reversed([*node.values()] if isinstance(node, dict) else [*node]))

    def _on_host(self, tensor: Tensor) -> np.ndarray:
        if tensor._composes is not None:
            raise SerializationError(
                f"save(format='torch'): a tensor of layout {tensor.layout!r}; save its values as "
                "tensors, or in this package's own format"
            )
        array = tensor.detach().array
        if isinstance(array, DeviceArray):
            return self._hosted.view(array)
        return np.asarray(array)

    def _find_types(self) -> dict[str, dtypes.dtype | None]:
        """The element type of each storage; None where PyTorch has no storage of it, or several
        types lie in one."""
        found: dict[str, set[dtypes.dtype]] = {name: set() for name in self.stored}
        for name, array in self._arrays.items():
            view = self._views.get(name)
            kind = _NAMES[array.dtype]
            whole = view is None or view.offset % kind.itemsize == 0
            found[name if view is None else view.of].add(kind if whole else dtypes.uint8)
        return {
            name: next(iter(kinds)) if len(kinds) == 1 and kinds <= _STORAGES.keys() else None
            for name, kinds in found.items()
        }

    # --- values ----------------------------------------------------------------------------------

    def _value(self, obj: Any, where: str) -> None:
        text = self._text
        kind = type(obj)
        if (plain := _PLAIN.get(kind)) is not None:
            plain(text, obj)
        elif isinstance(obj, Tensor):
            self._tensor(obj, where)
        elif (write := _CONTAINERS.get(kind)) is not None:
            if not text.again(id(obj)):
                write(self, obj, where)
        else:
            raise SerializationError(
                f"save(format='torch'): {where} is a {kind.__module__}.{kind.__qualname__}, which "
                "PyTorch does not load as data. Save its state_dict(), or numbers, texts, tensors "
                "and dicts, lists, tuples and sets of them"
            )

    def _items(self, pairs: Any, where: str) -> None:
        if pairs:
            self._text.op(b"(")
            for key, value in pairs:
                self._value(key, f"a key of {where}")
                self._value(value, f"{where}[{key!r:.40}]")
            self._text.op(b"u")

    def _dict(self, obj: dict, where: str) -> None:
        self._text.op(b"}")
        self._text.keep(id(obj))
        self._items(obj.items(), where)

    def _ordered(self, obj: OrderedDict, where: str) -> None:
        self._text.name("collections", "OrderedDict")
        self._text.op(b")R")
        self._text.keep(id(obj))
        self._items(obj.items(), where)
        about = getattr(obj, "_metadata", None)
        if about is not None:
            self._dict({"_metadata": about}, f"{where}._metadata")
            self._text.op(b"b")

    def _counter(self, obj: Counter, where: str) -> None:
        self._text.name("collections", "Counter")
        self._dict(dict(obj), where)
        self._text.op(b"\x85R")
        self._text.keep(id(obj))

    def _list(self, obj: list, where: str) -> None:
        self._text.op(b"]")
        self._text.keep(id(obj))
        if obj:
            self._text.op(b"(")
            for i, value in enumerate(obj):
                self._value(value, f"{where}[{i}]")
            self._text.op(b"e")

    def _tuple(self, obj: tuple, where: str) -> None:
        if len(obj) > 3:
            self._text.op(b"(")
        for i, value in enumerate(obj):
            self._value(value, f"{where}[{i}]")
        self._text.end_tuple(len(obj))
        if obj:
            self._text.keep(id(obj))

    def _set(self, obj: set, where: str) -> None:
        self._text.name("__builtin__", "set")
        self._list(list(obj), where)
        self._text.op(b"\x85R")
        self._text.keep(id(obj))

    # --- tensors ---------------------------------------------------------------------------------

    def _tensor(self, tensor: Tensor, where: str) -> None:
        if self._text.again(id(tensor)):
            return
        if isinstance(tensor, self._parameter):
            self._text.name("torch._utils", "_rebuild_parameter")
            self._over_storage(tensor, False)
            self._flag(tensor.requires_grad)
            self._no_hooks()
            self._text.op(b"\x87R")
        elif type(tensor) is Tensor:
            self._over_storage(tensor, tensor.requires_grad and tensor.is_leaf)
        else:
            raise SerializationError(
                f"save(format='torch'): {where} is a {type(tensor).__qualname__}; save its values "
                "as tensors"
            )
        self._text.keep(id(tensor))

    def _over_storage(self, tensor: Tensor, requires_grad: bool) -> None:
        name = self._tensors[id(tensor)][1]
        array, view = self._arrays[name], self._views.get(name)
        owner = name if view is None else view.of
        kind, typed = _NAMES[array.dtype], self._typed[owner]
        strides = _strides(array.shape, view, kind.itemsize)
        offset = 0 if view is None else view.offset // kind.itemsize
        text = self._text
        text.name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        text.op(b"(")
        self._reference(owner, typed, tensor.device)
        text.number(offset)
        self._numbers(array.shape)
        self._numbers(strides)
        self._flag(requires_grad)
        self._no_hooks()
        if not typed:
            text.name("torch", repr(kind).rpartition(".")[2])
        text.op(b"tR")

    def _reference(self, owner: str, typed: dtypes.dtype | None, where: device) -> None:
        text, stored = self._text, self.stored[owner]
        text.op(b"(")
        text.text("storage")
        if typed is None:
            text.name("torch.storage", "UntypedStorage")
        else:
            text.name("torch", _STORAGES[typed])
        text.text(self._keys[owner])
        text.text(str(where))
        text.number(stored.nbytes // (1 if typed is None else typed.itemsize))
        text.op(b"tQ")

    def _numbers(self, values: tuple[int, ...]) -> None:
        if len(values) > 3:
            self._text.op(b"(")
        for value in values:
            self._text.number(value)
        self._text.end_tuple(len(values))

    def _flag(self, value: bool) -> None:
        self._text.op(b"\x88" if value else b"\x89")

    def _no_hooks(self) -> None:
        self._text.name("collections", "OrderedDict")
        self._text.op(b")R")


def _strides(shape: tuple[int, ...], view: View | None, itemsize: int) -> tuple[int, ...]:
    """In elements; of what is stored whole, those of rows one behind the other."""
    if view is not None and view.offset % itemsize == 0:
        return tuple(s // itemsize for s in view.strides)
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= max(n, 1)
    return tuple(reversed(found))


def _bytes(text: _Text, value: bytes) -> None:
    text.name("_codecs", "encode")
    text.text(value.decode("latin1"))
    text.text("latin1")
    text.op(b"\x86R")


def _bytearray(text: _Text, value: bytearray) -> None:
    text.name("__builtin__", "bytearray")
    text.text(value.decode("latin1"))
    text.text("latin-1")
    text.op(b"\x86R")


def _complex(text: _Text, value: complex) -> None:
    text.name("__builtin__", "complex")
    text.op(b"G", ">d", value.real)
    text.op(b"G", ">d", value.imag)
    text.op(b"\x86R")


def _size(text: _Text, value: Size) -> None:
    text.name("torch", "Size")
    if len(value) > 3:
        text.op(b"(")
    for n in value:
        text.number(n)
    text.end_tuple(len(value))
    text.op(b"\x85R")


def _device(text: _Text, value: device) -> None:
    text.name("torch", "device")
    text.text(value.type)
    if value.index is None:
        text.op(b"\x85R")
    else:
        text.number(value.index)
        text.op(b"\x86R")


_PLAIN: dict[type, Callable[[_Text, Any], None]] = {
    type(None): lambda text, _: text.op(b"N"),
    bool: lambda text, value: text.op(b"\x88" if value else b"\x89"),
    int: _Text.number, str: _Text.text, bytes: _bytes, bytearray: _bytearray, complex: _complex,
    float: lambda text, value: text.op(b"G", ">d", value), Size: _size, device: _device,
    dtypes.dtype: lambda text, value: text.name("torch", repr(value).rpartition(".")[2]),
}  # fmt: skip
_CONTAINERS: dict[type, Callable[[Writer, Any, str], None]] = {
    dict: Writer._dict, OrderedDict: Writer._ordered, Counter: Writer._counter,
    list: Writer._list, tuple: Writer._tuple, set: Writer._set,
}  # fmt: skip


# --- the archive ------------------------------------------------------------------------------
class _Parts:
    """Takes what is written, without a copy of it."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._at = 0

    def write(self, part: Any) -> int:
        size = memoryview(part).nbytes
        self.parts.append(part)
        self._at += size
        return size

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is kept back."""


def archive(obj: Any, parameter: type) -> list[Any]:
    """The archive of ``obj``, as parts to be written one behind the other. ``parameter``: the
    class of parameters."""
    try:
        writer, parts = Writer(obj, parameter), _Parts()
    except RecursionError:
        raise SerializationError("save: obj is nested too deeply") from None
    with zipfile.ZipFile(parts, "w", zipfile.ZIP_STORED) as file:  # type: ignore[call-overload]
        _add(file, parts, "data.pkl", writer.text)
        _add(file, parts, "byteorder", b"little")
        for i, array in enumerate(writer.stored.values()):
            _add(file, parts, f"data/{i}", array.reshape(-1).view(np.uint8).data)
        _add(file, parts, "version", b"3\n")
    return parts.parts


def _add(file: zipfile.ZipFile, parts: _Parts, name: str, data: Any) -> None:
    """A record whose bytes begin where PyTorch's writer has them begin."""
    info = zipfile.ZipInfo(f"{_FOLDER}/{name}")
    info.file_size = memoryview(data).nbytes
    large = _ZIP64 if info.file_size * 1.05 > zipfile.ZIP64_LIMIT else 0
    begin = parts.tell() + _HEAD + len(info.filename) + large + 4
    gap = -begin % ALIGNED
    info.extra = b"FB" + struct.pack("<H", gap) + b"Z" * gap
    with file.open(info, "w", force_zip64=bool(large)) as record:
        record.write(data)
