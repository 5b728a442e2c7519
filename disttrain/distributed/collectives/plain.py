"""Python data as bytes: what the ``*_object`` collectives carry. Nothing is unpickled.

One type byte, then the value: None, numbers, text, bytes, containers, arrays, Tensors, dates,
dtypes and the like, nested at most ``MAX_DEPTH`` deep. An object of a class of one's own is the
name of the class, its attributes and (where it is a kind of dict, list, set or tuple) what it
holds. It is made again without a call of its code, from a class that the receiver has imported
already. Anything else is a ``DTypeError`` that says where it stands.

Large numbers of bytes are neither copied nor looked at one by one. Knows values and bytes; no
ranks.
"""

from __future__ import annotations

import enum
import importlib
import re
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...comm.calls.count import Count
from ...core.tensor import Tensor, rebuild
from ...core.types import dtypes
from ...core.types.device import located, usable
from ...errors import CommError, DTypeError
from . import plain_objects as things

MAX_DEPTH = 32
_INT, _FLOAT, _SIZE = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<Q")
_PAIR = struct.Struct("<dd")
_LARGE = 64 << 10  # bytes that are a part of their own
_DEVICE = re.compile("[a-z]{1,15}(:[0-9]{1,3})?")
_MANY = 16  # values of one type that travel as an array
_ALIGN = 16

Part = bytes | bytearray | memoryview


def encode(obj: object) -> np.ndarray:
    """``obj`` as an array of bytes."""
    return join(take_apart(obj), np.empty)


def decode(data: np.ndarray, give: bool = False) -> Any:
    """The object that ``encode`` was given. With ``give`` the memory of ``data`` is given to the
    object: an array that is most of it need not be copied."""
    reader = _Reader(np.ascontiguousarray(data).data.cast("B"), give)
    try:
        value = reader.get(0)
    except (struct.error, LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise CommError(f"object collective: the bytes received are damaged: {error}") from None
    if reader.at != len(reader.raw):
        left = len(reader.raw) - reader.at
        raise CommError(f"object collective: {left} bytes too many were received")
    return value


def take_apart(obj: object) -> list[Part]:
    """The bytes of ``obj`` in parts; large ones lie where they were."""
    writer = _Writer()
    writer.put(obj, "object", 0)
    return [*writer.parts, writer.out]


def join(parts: Sequence[Part], empty: Callable[[int, Any], np.ndarray]) -> np.ndarray:
    """The parts one behind the other, in memory that ``empty`` gives."""
    out = empty(sum(len(part) for part in parts), np.uint8)
    at = 0
    for part in parts:
        out[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return out


class _Writer:
    """Takes values apart."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.out, self.before = bytearray(), 0

    def bulk(self, raw: Part) -> None:
        """Bytes as they are."""
        if len(raw) < _LARGE:
            self.out += raw
            return
        self.parts += [self.out, raw]
        self.before += len(self.out) + len(raw)
        self.out = bytearray()

    def sized(self, kind: bytes, raw: Part) -> None:
        self.out += kind + _SIZE.pack(len(raw))
        self.bulk(raw)

    def align(self) -> None:
        self.out += bytes(-(self.before + len(self.out)) % _ALIGN)

    def put(self, obj: object, where: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise DTypeError(f"object collective: {where} is nested deeper than {MAX_DEPTH} levels")
        put = _PUT.get(obj.__class__)
        if put is not None:
            put(self, obj, where, depth)
        elif isinstance(obj, Tensor):
            self.tensor(obj, where)
        elif isinstance(obj, np.generic):
            self.array(obj, where, depth, b"G")
        else:
            self.thing(obj, where, depth)

    def mark(self, raw: bytes) -> None:
        self.out += raw

    def number(self, obj: int, where: str, depth: int) -> None:
        fits = -(1 << 63) <= obj < 1 << 63
        if fits:
            self.out += b"i" + _INT.pack(obj)
        else:
            self.sized(b"I", b"%x" % obj if obj >= 0 else b"-%x" % -obj)

    def text(self, obj: str, where: str, depth: int) -> None:
        self.sized(b"s", obj.encode("utf-8", "surrogatepass"))

    def several(self, kind: bytes, values: list | tuple, where: str, depth: int) -> None:
        """The elements of a container; numbers all alike, or texts, at once."""
        self.out += kind + _SIZE.pack(len(values))
        only = set(map(type, values)) if len(values) >= _MANY else set()
        words = _words(values) if only == {int} else None
        if words is not None:
            self.row(b"i", words)
        elif only == {float}:
            self.row(b"f", np.array(values, np.float64))
        elif only == {str}:
            texts = [v.encode("utf-8", "surrogatepass") for v in values]
            self.row(b"s", np.array([len(t) for t in texts], np.int64))
            self.sized(b"r", b"".join(texts))
        else:
            self.out += b"."
            for i, value in enumerate(values):
                self.put(value, f"{where}[{i}]" if depth < 3 else where, depth + 1)

    def row(self, kind: bytes, numbers: np.ndarray) -> None:
        self.out += kind
        self.align()
        self.bulk(numbers.data.cast("B"))

    def list(self, obj: list, where: str, depth: int) -> None:
        self.several(b"l", obj, where, depth)

    def tuple(self, obj: tuple, where: str, depth: int) -> None:
        self.several(b"t", obj, where, depth)

    def set(self, obj: object, where: str, depth: int) -> None:
        self.several(b"S" if obj.__class__ is set else b"Z", _in_order(obj), where, depth)

    def dict(self, obj: dict, where: str, depth: int) -> None:
        self.out += b"d"
        self.several(b"l", list(obj), f"the keys of {where}", depth + 1)
        self.out += b"l" + _SIZE.pack(len(obj)) + b"."
        for key, value in obj.items():
            self.put(value, f"{where}[{key!r}]" if depth < 3 else where, depth + 1)

    def array(self, array: Any, where: str, depth: int, kind: bytes = b"A") -> None:
        array = np.asarray(array)
        name = dtypes.of(array.dtype).name.encode()
        self.sized(kind, name)
        self.out += _SIZE.pack(array.ndim) + b"".join(map(_SIZE.pack, array.shape))
        self.align()
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bulk(flat.data)

    def tensor(self, obj: Tensor, where: str) -> None:
        """A Tensor that requires grad is a leaf that does, on the other side."""
        array = obj.detach().array
        if isinstance(array, DeviceArray):
            self.sized(b"V", str(obj.device).encode())
            array = array.to_host()
        if not isinstance(array, np.ndarray):
            raise _not_plain(where, type(obj))
        kind = b"X" if type(obj) is Tensor else _tag(obj)
        self.array(array, where, 0, kind.lower() if obj.requires_grad else kind)

    def thing(self, obj: object, where: str, depth: int) -> None:
        kind, found = obj.__class__, things.known(obj)
        if found is not None:
            name, inner = found
            self.sized(b"M", name.encode())
            self.put(inner, where, depth + 1)
        elif isinstance(obj, enum.Enum):
            self.named(b"E", kind, where)
            self.put(obj.name, where, depth + 1)
        elif things.is_plain(kind):
            self.named(b"R", kind, where)
            self.put(things.held(obj), where, depth + 1)
            self.put(things.attributes(obj), f"the attributes of {where}", depth + 1)
        else:
            raise _not_plain(where, kind)

    def named(self, tag: bytes, kind: type, where: str) -> None:
        name = things.name_of(kind)
        if name is None:
            raise DTypeError(
                f"object collective: {where} is of the class {kind.__qualname__}, which is not "
                "found by this name. Define it at the top of a module, or send its parts"
            )
        self.sized(tag, name.encode())


def _words(values: Any) -> np.ndarray | None:
    """Whole numbers as 64 bits each; None where one does not fit. An ``array.array`` takes them
    in half the time that numpy needs, and says what is too large."""
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        return None


def _in_order(values: Any) -> list:
    """The elements of a set in an order that does not depend on hashes."""
    return sorted(values, key=repr)


def _not_plain(where: str, kind: type) -> DTypeError:
    return DTypeError(
        f"object collective: {where} is a {kind.__name__}; plain data is needed (None, bool, "
        "numbers, str, bytes, lists, tuples, dicts, sets, arrays, tensors, and objects made of "
        "such attributes); send its parts"
    )


_PUT: dict[type, Callable[[_Writer, Any, str, int], None]] = {
    type(None): lambda w, obj, where, depth: w.mark(b"N"),
    type(...): lambda w, obj, where, depth: w.mark(b"."),
    bool: lambda w, obj, where, depth: w.mark(b"T" if obj else b"F"),
    int: _Writer.number,
    Count: _Writer.number,
    float: lambda w, obj, where, depth: w.mark(b"f" + _FLOAT.pack(obj)),
    complex: lambda w, obj, where, depth: w.mark(b"c" + _PAIR.pack(obj.real, obj.imag)),
    str: _Writer.text,
    bytes: lambda w, obj, where, depth: w.sized(b"r", obj),
    bytearray: lambda w, obj, where, depth: w.sized(b"y", obj),
    list: _Writer.list,
    tuple: _Writer.tuple,
    set: _Writer.set,
    frozenset: _Writer.set,
    dict: _Writer.dict,
    np.ndarray: _Writer.array,
}


class _Reader:
    """Puts values together again, from one row of bytes."""

    def __init__(self, raw: memoryview, give: bool) -> None:
        self.raw, self.at, self.give = raw, 0, give

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.raw, self.at)
        self.at += form.size
        return value

    def bulk(self) -> memoryview:
        return self.bytes_of(self.number(_SIZE))

    def bytes_of(self, count: int) -> memoryview:
        start, left = self.at, len(self.raw) - self.at
        if count > left:
            raise ValueError(f"{count} bytes announced, {left} left")
        self.at += count
        return self.raw[start : self.at]

    def text(self) -> str:
        return str(self.bulk(), "utf-8", "surrogatepass")

    def get(self, depth: int) -> Any:
        if depth > MAX_DEPTH + 1:
            raise ValueError("nested too deeply")
        kind = self.raw[self.at]
        self.at += 1
        read = _GET.get(kind)
        if read is None:
            raise ValueError(f"unknown type byte {bytes((kind,))!r}")
        return read(self, depth)

    def several(self, depth: int) -> list:
        count = self.number(_SIZE)
        if count > len(self.raw) - self.at:
            raise ValueError(f"{count} elements announced, {len(self.raw) - self.at} bytes left")
        how = self.bytes_of(1)
        if how == b".":
            get = self.get
            return [get(depth + 1) for _ in range(count)]
        numbers = self.row(np.dtype(np.float64 if how == b"f" else np.int64), count)
        if how != b"s":
            return numbers.tolist()
        self.at += 1
        texts, values, end = self.bulk(), [], 0
        for size in numbers.tolist():
            start, end = end, end + size
            values.append(str(texts[start:end], "utf-8", "surrogatepass"))
        return values

    def row(self, kind: np.dtype, count: int) -> np.ndarray:
        self.at += -self.at % _ALIGN
        return np.frombuffer(self.bytes_of(count * kind.itemsize), kind)

    def dict(self, depth: int) -> dict:
        keys, values = self.get(depth + 1), self.get(depth + 1)
        return dict(zip(keys, values, strict=True))

    def array(self, depth: int) -> np.ndarray:
        """As it was; its memory is its own."""
        name, ndim = self.text(), self.number(_SIZE)
        if ndim > 64:
            raise ValueError(f"{ndim} dimensions announced")
        shape = [self.number(_SIZE) for _ in range(ndim)]
        count = 1
        for n in shape:
            count *= n
        found = self.row(dtypes.as_dtype(name).np, count).reshape(shape)
        return found if self.give and 2 * found.nbytes > len(self.raw) else found.copy()

    def tensor(self, depth: int, kind: type = Tensor, requires_grad: bool = False) -> Tensor:
        array = self.array(depth)
        return rebuild(kind, array, array.shape, requires_grad)

    def on_device(self, depth: int) -> Any:
        """A tensor that was on a device is on the one of that name here."""
        name = self.text()
        if not _DEVICE.fullmatch(name):
            raise ValueError(f"{name!r} is no device")
        found = self.get(depth + 1)
        there = located(usable(name))
        if there is None or found.__class__ not in map(_tensor_class, "XPB"):
            raise ValueError("a device without a tensor on it")
        array = there.take(found.array)
        return rebuild(found.__class__, array, array.shape, found.requires_grad)

    def thing(self, depth: int) -> Any:
        return things.make_known(self.text(), self.get(depth + 1))

    def member(self, depth: int) -> Any:
        kind = things.find_class(self.text())
        if not issubclass(kind, enum.Enum):
            raise ValueError(f"{kind.__name__} is no Enum")
        return kind[self.get(depth + 1)]

    def record(self, depth: int) -> Any:
        kind = things.find_class(self.text())
        return things.make(kind, self.get(depth + 1), self.get(depth + 1))


def _tensors(tag: str, requires_grad: bool) -> Callable[[_Reader, int], Any]:
    return lambda reader, depth: reader.tensor(depth, _tensor_class(tag), requires_grad)


def _tensor_class(tag: str) -> type[Tensor]:
    """The class that a tag stands for. Layers are loaded where a value is one of theirs."""
    if tag == "X":
        return Tensor
    layers = importlib.import_module("disttrain.nn.parameter")
    found: type[Tensor] = layers.Parameter if tag == "P" else layers.Buffer
    return found


def _tag(obj: Tensor) -> bytes:
    """What stands for its class; classes of programs travel as those that they are made of."""
    found = [tag for tag in "PB" if isinstance(obj, _tensor_class(tag))]
    return (found or ["X"])[0].encode()


_GET: dict[int, Callable[[_Reader, int], Any]] = {
    ord(tag): read
    for tag, read in {
        "N": lambda r, depth: None,
        ".": lambda r, depth: ...,
        "T": lambda r, depth: True,
        "F": lambda r, depth: False,
        "i": lambda r, depth: r.number(_INT),
        "I": lambda r, depth: int(r.text(), 16),
        "f": lambda r, depth: r.number(_FLOAT),
        "c": lambda r, depth: complex(r.number(_FLOAT), r.number(_FLOAT)),
        "s": lambda r, depth: r.text(),
        "r": lambda r, depth: bytes(r.bulk()),
        "y": lambda r, depth: bytearray(r.bulk()),
        "l": _Reader.several,
        "t": lambda r, depth: tuple(r.several(depth)),
        "S": lambda r, depth: set(r.several(depth)),
        "Z": lambda r, depth: frozenset(r.several(depth)),
        "d": _Reader.dict,
        "A": _Reader.array,
        "G": lambda r, depth: r.array(depth)[()],
        "M": _Reader.thing,
        "V": _Reader.on_device,
        "E": _Reader.member,
        "R": _Reader.record,
        **{tag: _tensors(tag, False) for tag in "XPB"},
        **{tag.lower(): _tensors(tag, True) for tag in "XPB"},
    }.items()
}
