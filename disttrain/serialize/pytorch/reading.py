"""The two formats of ``torch.save``: an archive, and before PyTorch 1.6 pickles and then bytes."""

from __future__ import annotations

import collections
import io
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Size
from ...core.types import dtypes
from ...core.types.device import device
from ...errors import DeviceError, SerializationError
from ..objects import ClassRefused, Known, begin, finish, parameter
from .archive import MAGIC, Archive, Bytes
from .opcodes import Global, Machine, Refused, Source, set_of, shown
from .storages import Place, Storage, Tensors

OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_VERSION = 1001
KINDS = {
    "Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16, "Long": dtypes.int64, "Int": dtypes.int32,
    "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool,
    "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128,
    "Untyped": dtypes.uint8,
}  # fmt: skip
TYPES = """float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool
complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
float8_e8m0fnu""".split()
_ADVICE = (
    "Only data is read from files of PyTorch: tensors, parameters, numbers, texts, and dicts, "
    "lists, tuples and sets of these; nothing in them is imported or called. Where PyTorch and "
    "what wrote the file are installed, save model.state_dict() and the like in place of objects; "
    "or allow a class that is yours: load(f, classes=[...])"
)


def is_archive(first: bytes) -> bool:
    """Whether a file that begins so may be an archive of PyTorch."""
    return first.startswith(MAGIC)


def is_old(first: bytes) -> bool:
    """Whether a file that begins so is one of PyTorch before 1.6."""
    return first.startswith(OLD_MAGIC[: len(first)]) and len(first) >= 8


class Reader:
    """One file. ``data``: all of its bytes, writable, as nobody else's."""

    def __init__(
        self, data: np.ndarray, where: str, place: Place, known: Known, verify: bool
    ) -> None:
        self._data, self._where, self._known, self._verify = data, where, known, verify
        self._place = place
        self._storages: dict[str, Storage] = {}
        self._swap = False

    # --- the archive -----------------------------------------------------------------------------

    def archive(self) -> Any:
        """The value of an archive; this reader itself where it is not one of PyTorch's."""
        archive = Archive(self._data, self._where, self._verify)
        if "data.pkl" not in archive:
            return self
        if "byteorder" in archive:
            self._swap = bytes(archive.read("byteorder")) == b"big"
        text = io.BytesIO(archive.read("data.pkl").data)

        def storage(reference: Any) -> Storage:
            key, kind, location, count = self._reference(reference)
            size = count * kind.itemsize
            return self._stored(key, kind, location, size, lambda: archive.read(f"data/{key}"))

        return self._value(text, storage)

    def _value(self, text: Source, storage: Callable[[Any], Storage]) -> Any:
        tensors = Tensors(self._place, parameter())
        found = self._machine(tensors, storage).load(text)
        if not all(s.used for s in self._storages.values()):
            found = _with_storages(found, tensors)
        return found

    def _reference(self, given: Any) -> tuple[str, dtypes.dtype, str, int]:
        """(key, element type, location, elements) of a reference to a storage."""
        if type(given) is not tuple or len(given) < 5 or given[0] != "storage":
            raise Refused(f"a reference to {shown(given)}")
        _, kind, key, location, count = given[:5]
        if (
            not type(key) is type(location) is str
            or not isinstance(kind, dtypes.dtype)
            or type(count) is not int
            or count < 0
        ):
            raise ValueError(f"a reference to a storage: {shown(given)}")
        return key, kind, location, count

    def _stored(
        self, key: str, kind: dtypes.dtype, location: str, size: int,
        read: Callable[[], np.ndarray],
    ) -> Storage:  # fmt: skip
        found = self._storages.get(key)
        if found is None:
            raw = read()
            if raw.size != size:
                raise SerializationError(
                    f"storage {key!r:.40} has {raw.size} bytes; {size} are claimed"
                )
            if self._swap and kind.itemsize > 1:
                part = kind.itemsize // (2 if kind.is_complex else 1)
                raw = raw.reshape(-1, part)[:, ::-1].reshape(-1)
            found = self._storages[key] = Storage(key, raw, kind, location)
        return found

    def names(self) -> list[str]:
        """What an archive names and is not data, nor allowed."""
        archive, table = Archive(self._data, self._where, self._verify), _constructors(_Sizes())
        found = set()
        for opcode, argument, _ in pickletools.genops(archive.read("data.pkl").tobytes()):
            if opcode.name == "GLOBAL":
                module, _, name = str(argument).partition(" ")
                full = f"{module.replace('__builtin__', 'builtins')}.{name}"
                if full not in table and f"{module}:{name}" not in self._known.allowed:
                    found.add(full)
        return sorted(found)

    # --- the old format --------------------------------------------------------------------------

    def old(self) -> Any:
        """The value of a file of four pickles and the bytes of its storages."""
        file = Bytes(self._data)
        plain = Machine(self._where, _nothing, _no_reference, _no_state)
        if plain.load(file) != int.from_bytes(OLD_MAGIC[4:14], "little"):
            raise SerializationError(f"{self._where}: not a file of PyTorch")
        version, about = plain.load(file), plain.load(file)
        if version != _VERSION or type(about) is not dict:
            raise SerializationError(f"{self._where}: version {shown(version)} of the old format")
        self._swap = about.get("little_endian") is False
        start, sizes = file.tell(), _Sizes()
        self._machine(sizes, lambda given: sizes.note(self._reference(given))).load(file)
        places = self._places(plain.load(file), file.tell(), sizes.kinds)
        file.seek(start)

        def storage(reference: Any) -> Storage:
            key, kind, location, count = self._reference(reference)
            if len(reference) > 5 and reference[5] is not None:
                raise Refused("a storage that is part of another one")
            at, size = places[key]
            wanted = count * kind.itemsize
            return self._stored(key, kind, location, wanted, lambda: self._data[at : at + size])

        return self._value(file, storage)

    def _places(
        self, keys: Any, at: int, kinds: dict[str, dtypes.dtype]
    ) -> dict[str, tuple[int, int]]:
        """Where each storage lies: behind the number of its elements, in the order of the keys."""
        found: dict[str, tuple[int, int]] = {}
        for key in keys if type(keys) is list else ():
            head = bytes(self._data[at : at + 8])
            count = int.from_bytes(head, "big" if self._swap else "little")
            size = count * kinds[key].itemsize if type(key) is str and key in kinds else -1
            if len(head) < 8 or size < 0 or at + 8 + size > self._data.size or key in found:
                raise SerializationError(
                    f"{self._where}: storage {shown(key)} is cut short, or belongs to nothing"
                )
            found[key] = at + 8, size
            at += 8 + size
        return found

    # --- names -----------------------------------------------------------------------------------

    def _machine(self, tensors: Any, storage: Callable[[Any], Any]) -> Machine:
        table = _constructors(tensors)

        def find(module: str, name: str) -> Global:
            full = f"{module.replace('__builtin__', 'builtins')}.{name}"
            if full in table:
                return table[full]
            if (cls := self._known.allowed.get(f"{module}:{name}")) is not None:
                return Global(
                    full, lambda *args: begin("make", cls, list(args), {}),
                    new=lambda *args: begin("new", cls, list(args), {}),
                )  # fmt: skip
            raise ClassRefused(f"Weights only load failed: it needs {full}. {_ADVICE}")

        def with_state(target: Any, state: Any) -> None:
            if type(target) not in self._known.allowed.values():
                raise Refused(f"state for a {type(target).__name__}. {_ADVICE}")
            finish(target, state, None, None)

        return Machine(self._where, find, storage, with_state)


class _Sizes:
    """In place of ``Tensors``: notes the element type of each storage, and makes nothing."""

    def __init__(self) -> None:
        self.kinds: dict[str, dtypes.dtype] = {}

    def note(self, reference: tuple) -> None:
        self.kinds[reference[0]] = reference[1]

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


def _constructors(tensors: Any) -> dict[str, Global]:
    """What stands for the names that files of PyTorch use, by their full names."""
    rebuilt = {
        "_rebuild_tensor": tensors.tensor, "_rebuild_tensor_v2": tensors.tensor,
        "_rebuild_tensor_v3": tensors.of_type, "_rebuild_parameter": tensors.parameter,
        "_rebuild_parameter_with_state": tensors.parameter,
        "_rebuild_meta_tensor_no_storage": tensors.meta,
    }  # fmt: skip
    made: dict[str, Callable[..., Any]] = {
        **{f"torch._utils.{name}": make for name, make in rebuilt.items()},
        "torch.nn.parameter.Parameter": tensors.parameter,
        "torch.Size": size_of, "torch.device": _device, "_codecs.encode": _encoded,
        "collections.OrderedDict": _ordered, "collections.Counter": _counter,
        "builtins.set": set_of, "builtins.complex": _complex, "builtins.bytearray": _bytearray,
    }  # fmt: skip
    values: dict[str, Any] = {f"torch.{name}": getattr(dtypes, name) for name in TYPES}
    for name, kind in KINDS.items():
        for module in ("torch", "torch.storage", "torch.cuda"):
            values[f"{module}.{name}Storage"] = kind
    found = {name: Global(name, make) for name, make in made.items()}
    return found | {name: Global(name, value=value) for name, value in values.items()}


def size_of(sizes: Any = ()) -> Size:
    """What a file gives as a size."""
    if not all(type(n) is int for n in sizes):
        raise TypeError(f"a size of {shown(sizes)}")
    return Size(sizes)


def _device(kind: str, index: int | None = None) -> device:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise TypeError(f"a device of {shown((kind, index))}")
    try:
        return device(kind) if index is None else device(kind, index)
    except DeviceError as error:
        raise ValueError(str(error)) from None


def _encoded(text: str, code: str = "latin1") -> bytes:
    if type(text) is not str or code not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in {shown(code)}")
    return text.encode("latin1")


def _bytearray(*args: Any) -> bytearray:
    if len(args) == 1 and type(args[0]) is bytes:
        return bytearray(args[0])
    return bytearray(_encoded(*args)) if args else bytearray()


def _complex(real: float, imag: float) -> complex:
    if not all(type(n) in (float, int) for n in (real, imag)):
        raise TypeError("a complex number of no numbers")
    return complex(real, imag)


def _ordered(pairs: Any = ()) -> collections.OrderedDict:
    if type(pairs) not in (list, tuple) or not all(type(p) in (list, tuple) for p in pairs):
        raise TypeError("an ordered dict of no pairs")
    keys = set_of([key for key, _ in pairs])  # are hashed in a moment
    return collections.OrderedDict(pairs) if keys else collections.OrderedDict()


def _counter(counts: Any = ()) -> collections.Counter:
    if type(counts) is not dict and counts != ():
        raise TypeError("counts of no dict")
    return collections.Counter(counts or {})


def _nothing(module: str, name: str) -> Global:
    raise Refused(f"{module}.{name}, where numbers are due")


def _no_reference(given: Any) -> None:
    raise Refused("a reference, where numbers are due")


def _no_state(target: Any, state: Any) -> None:
    raise Refused("state, where numbers are due")


def _with_storages(value: Any, tensors: Tensors) -> Any:
    """Storages that stand by themselves in dicts and lists become those of tensors."""
    if isinstance(value, Storage):
        return tensors.bytes_of(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    seen, stack = {id(value)}, [value]
    while stack:
        node = stack.pop()
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        for key, part in list(pairs):
            if isinstance(part, Storage):
                if isinstance(node, tuple):
                    raise SerializationError("a storage by itself in a tuple; save its tensor")
                node[key] = tensors.bytes_of(part)
            elif isinstance(part, (dict, list, tuple)) and id(part) not in seen:
                seen.add(id(part))
                stack.append(part)
    return value
