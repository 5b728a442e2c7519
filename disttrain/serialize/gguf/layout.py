"""The bytes of GGUF files, versions 2 and 3.

    "GGUF"   version u32   number of tensors u64   number of keys u64
    keys     text  type u32  value                       (text: length u64, UTF-8)
    tensors  text  dimensions u32  sizes u64, innermost first  type u32  offset u64
    data     from the next multiple of general.alignment on; each tensor at such a multiple of it

Everything in a file is doubted until ``parse`` has checked it: counts against bytes, offsets
against the end and each other. Knows bytes, texts and numpy's numbers; no Tensor, no file.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...errors import ConfigError, SerializationError
from .blocks import BY_CODE, Kind

MAGIC, VERSION, ALIGN = b"GGUF", 3, 32
ALIGNMENT = "general.alignment"
DIMS, NAME = 4, 63  # dimensions, and bytes of a name, that ggml takes at most
_KEYS, _TENSORS, _VALUES, _DEPTH = 1 << 16, 1 << 20, 8_000_000, 4  # at most, in a file
_HEADER_CAP = 1 << 30

# Types of values: number -> (form of struct, numpy's type).
_NUMBERS = {
    0: ("<B", np.uint8), 1: ("<b", np.int8), 2: ("<H", np.uint16), 3: ("<h", np.int16),
    4: ("<I", np.uint32), 5: ("<i", np.int32), 6: ("<f", np.float32), 7: ("<?", np.bool_),
    10: ("<Q", np.uint64), 11: ("<q", np.int64), 12: ("<d", np.float64),
}  # fmt: skip
_CODES: dict[Any, int] = {np.dtype(kind): code for code, (_, kind) in _NUMBERS.items()}
_BOOL, _TEXT, _LIST = 7, 8, 9
_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its shape as ours (outermost first), its place in the file."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    begin: int
    end: int


# --- writing -------------------------------------------------------------------------------------


def build(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[Kind, tuple[int, ...]]]
) -> tuple[bytes, list[int]]:
    """The bytes in front of the data, and the padding behind each tensor."""
    align = _alignment(metadata.get(ALIGNMENT, ALIGN), "gguf")
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        head += [_text(key), _value(key, value)]
    at, padding = 0, []
    for name, (kind, shape) in tensors.items():
        _check_name(name, shape)
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += [_text(name), sizes, struct.pack("<IQ", kind.code, at)]
        size = kind.num_bytes(shape)
        padding.append(-size % align)
        at += size + padding[-1]
    raw = b"".join(head)
    return raw + bytes(-len(raw) % align), padding


def _check_name(name: str, shape: tuple[int, ...]) -> None:
    if len(name.encode()) > NAME or not name:
        raise ConfigError(f"gguf: the name {name!r:.100}: 1 to {NAME} bytes are needed")
    if len(shape) > DIMS or 0 in shape:
        raise ConfigError(
            f"gguf: {name!r} has the shape {list(shape)}; up to {DIMS} sizes above 0 are needed"
        )


def _text(text: str) -> bytes:
    try:
        raw = text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise ConfigError(f"gguf: {text!r:.80} is no text that UTF-8 can have") from None
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any) -> bytes:
    """A value with its type in front."""
    if isinstance(value, str):
        return struct.pack("<I", _TEXT) + _text(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return struct.pack("<I", _LIST) + _list(key, value)
    code, number = _number(key, value)
    return struct.pack("<I", code) + struct.pack(_NUMBERS[code][0], number)


def _number(key: str, value: Any) -> tuple[int, Any]:
    """The type of a number: numpy's own; else as llama.cpp has counts and factors."""
    if isinstance(value, np.generic) and value.dtype in _CODES:
        return _CODES[value.dtype], value.item()
    if isinstance(value, bool):
        return _BOOL, value
    if isinstance(value, float):
        return 6 if not abs(value) > _FLOAT32 or math.isinf(value) else 12, value
    if isinstance(value, int):
        for code, low, high in ((4, 0, 1 << 32), (5, -(1 << 31), 0), (10, 0, 1 << 64),
                                (11, -(1 << 63), 0)):  # fmt: skip
            if low <= value < high:
                return code, value
    raise ConfigError(
        f"gguf: {key!r} is {type(value).__name__} {value!r:.80}; needed: a text, a number of at "
        "most 64 bits, a truth value, or a list of these"
    )


def _list(key: str, values: Any) -> bytes:
    if isinstance(values, np.ndarray) and values.dtype in _CODES and values.ndim == 1:
        head = struct.pack("<IQ", _CODES[values.dtype], len(values))
        return head + values.astype(values.dtype.newbyteorder("<")).tobytes()
    values = list(values)
    if values and all(isinstance(v, str) for v in values):
        return struct.pack("<IQ", _TEXT, len(values)) + b"".join(map(_text, values))
    if values and all(isinstance(v, (list, tuple)) for v in values):
        inner = b"".join(_list(key, v) for v in values)
        return struct.pack("<IQ", _LIST, len(values)) + inner
    codes = [_number(key, v)[0] for v in values] or [4]
    kinds = {"f" if c in (6, 12) else "b" if c == _BOOL else "i" for c in codes}
    if len(kinds) > 1:
        raise ConfigError(f"gguf: {key!r}: a list of one type of values is needed")
    codes = [max(codes)] if kinds == {"f"} else codes
    if kinds == {"i"} and values:  # as llama.cpp has them, where they fit
        codes = [5 if all(-(1 << 31) <= v < 1 << 31 for v in values) else 11]
    form = _NUMBERS[codes[0]][0]
    return struct.pack("<IQ", codes[0], len(values)) + b"".join(
        struct.pack(form, v) for v in values
    )


# --- reading -------------------------------------------------------------------------------------


class _Bytes:
    """The bytes of a file, taken from the front."""

    def __init__(self, raw: memoryview, where: str) -> None:
        self.raw, self.where, self.at, self.values = raw, where, 0, 0

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self.raw) - self.at or self.at + count > _HEADER_CAP:
            self.refuse(f"{what} should have {count} bytes; {len(self.raw) - self.at} follow")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def count(self, what: str, most: int) -> int:
        found = self.number("<Q", what)
        if found > most:
            self.refuse(f"{found} {what}; at most {most} are allowed")
        self.values += found
        if self.values > _VALUES:
            self.refuse(f"more than {_VALUES} values")
        return found

    def text(self, what: str) -> str:
        raw = bytes(self.take(self.number("<Q", what), what))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} is no UTF-8: {raw[:40]!r}")

    def refuse(self, said: str) -> NoReturn:
        raise SerializationError(
            f"{self.where}: offset {self.at}: {said}. The file is cut short or damaged"
        )


def parse(raw: memoryview, where: str) -> tuple[dict[str, Any], list[Entry]]:
    """The metadata and the tensors of the file ``raw``, checked."""
    if bytes(raw[:4]) != MAGIC:
        raise SerializationError(f"{where}: begins with {bytes(raw[:4])!r}; this is no GGUF file")
    b = _Bytes(raw, where)
    b.at = 4
    version = b.number("<I", "the version")
    if version not in (2, 3):
        raise SerializationError(f"{where}: version {version}; 2 and 3 are read (little-endian)")
    num_tensors, num_keys = b.count("tensors", _TENSORS), b.count("keys", _KEYS)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = b.text("a key")
        if key in metadata:
            b.refuse(f"the key {key!r:.80} stands twice")
        metadata[key] = _read(b, b.number("<I", f"{key!r:.80}"), key, 0)
    told = [_entry(b) for _ in range(num_tensors)]
    align = _alignment(metadata.get(ALIGNMENT, ALIGN), where)
    start = b.at + -b.at % align
    return metadata, _placed(told, start, align, len(raw), where)


def _read(b: _Bytes, code: int, key: str, depth: int) -> Any:
    what = f"{key!r:.80}"
    if code == _TEXT:
        return b.text(what)
    if code == _BOOL:
        found = b.number("<B", what)
        if found > 1:
            b.refuse(f"{what}: a truth value is {found}")
        return bool(found)
    if code in _NUMBERS:
        return b.number(_NUMBERS[code][0], what)
    if code != _LIST or depth >= _DEPTH:
        b.refuse(f"{what}: a value of type {code}, {depth} lists deep, is not known")
    inner = b.number("<I", what)
    count = b.count(f"values of {what}", _VALUES)
    if inner in _NUMBERS:
        kind = np.dtype(_NUMBERS[inner][1]).newbyteorder("<")
        found = np.frombuffer(b.take(count * kind.itemsize, what), kind)
        if inner == _BOOL and count and found.view(np.uint8).max() > 1:
            b.refuse(f"{what}: a truth value is neither 0 nor 1")
        return found.tolist()
    return [_read(b, inner, key, depth + 1) for _ in range(count)]


def _entry(b: _Bytes) -> tuple[str, Kind, tuple[int, ...], int]:
    name = b.text("the name of a tensor")
    where = f"tensor {name!r:.80}"
    dims = b.number("<I", where)
    if dims > DIMS:
        b.refuse(f"{where} has {dims} dimensions; at most {DIMS} are allowed")
    shape = tuple(b.number("<Q", where) for _ in range(dims))[::-1]
    code, offset = b.number("<I", where), b.number("<Q", where)
    if code not in BY_CODE:
        known = ", ".join(k.name for k in BY_CODE.values())
        b.refuse(f"{where} has the type {code}; known are {known}")
    if math.prod(max(n, 1) for n in shape) >= 1 << 60 or not BY_CODE[code].fits(shape):
        b.refuse(f"{where}: the shape {list(shape)} cannot be of {BY_CODE[code].name}")
    return name, BY_CODE[code], shape, offset


def _placed(told: list, start: int, align: int, size: int, where: str) -> list[Entry]:
    """The entries, once none overlaps another one, nor the end."""
    found: dict[str, Entry] = {}
    for name, kind, shape, offset in told:
        begin = start + offset
        end = begin + kind.num_bytes(shape)
        if name in found or offset % align or end > size:
            why = ("stands twice" if name in found else f"lies at {offset}, no multiple of {align}"
                   if offset % align else f"ends at byte {end} of {size}")  # fmt: skip
            raise SerializationError(
                f"{where}: tensor {name!r:.80} {why}. The file is cut short or damaged"
            )
        found[name] = Entry(name, kind, shape, begin, end)
    ordered = sorted(found.values(), key=lambda e: (e.begin, e.end))
    for before, entry in itertools.pairwise(ordered):
        if entry.begin < before.end:
            raise SerializationError(
                f"{where}: the tensors {before.name!r:.80} and {entry.name!r:.80} overlap"
            )
    return list(found.values())


def _alignment(value: Any, where: str) -> int:
    fine = isinstance(value, (int, np.integer)) and 8 <= value <= 1 << 20 and not value & value - 1
    if not fine:
        raise SerializationError(
            f"{where}: {ALIGNMENT} is {value!r:.40}; a power of two from 8 to {1 << 20} is needed"
        )
    return int(value)
