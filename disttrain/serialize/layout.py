"""The safetensors layout: header length, JSON header, then the bytes of all tensors back to back.

    8 bytes  little-endian length N of the header
    N bytes  JSON: {"__metadata__": {str: str}, name: {"dtype", "shape", "data_offsets": [a, b]}}
    rest     the tensors; offsets count from here, and leave neither holes nor overlaps

Format: https://huggingface.co/docs/safetensors (the JSON may end in spaces). Everything in a file
is doubted until ``parse`` has checked it. Knows bytes and numpy types; no Tensor, no file.
"""

from __future__ import annotations

import gc
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np

from ..backends.llvm.checksum import BLOCK
from ..errors import SerializationError

HEADER_CAP = 16 << 20  # bytes of JSON that are parsed at most
ITEM_CAP = 3_000_000  # values in that JSON at most: what bounds the memory that parsing takes
ALIGN = 64
METADATA = "__metadata__"
# CRC-32C of every 256 KiB of every tensor in the order of the data, 8 hex digits each. Files of
# older versions have CRC-32 of every tensor as a whole.
BLOCKS = "disttrain.crc32c"
SUMS = "disttrain.sums"
CRC = "disttrain.crc32"  # CRC-32 of length and header, with these digits zero
_CRC_AT = f'{{"{METADATA}":{{"{CRC}":"'.encode()  # every header of ours begins so
_NO_CRC = b"00000000"

CODES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
_ITEMSIZE = {code: dtype.itemsize for code, dtype in CODES.items()}
C128 = "C128"  # not in the format: stored as F64 with one more dimension, and told in the metadata
NAMES = {dtype: code for code, dtype in CODES.items()}
KINDS = {**CODES, C128: np.dtype("<c16")}
KIND_NAMES = {dtype: code for code, dtype in KINDS.items()}

_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, as torch.save (.pt) and numpy.savez (.npz) write"),
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9", "a PyTorch file of the old format (pickle)"),
    (b"\x80", "a Python pickle"),
    (b"\x93NUMPY", "a numpy array (.npy)"),
    (b"\x89HDF", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip file"),
)
CONVERT_LINE = (
    'python -c "import torch, safetensors.torch as s; '
    "f = lambda v, p='': {p[1:]: v.detach().clone().contiguous()} if torch.is_tensor(v) "
    "else {p[1:]: torch.tensor(v)} if isinstance(v, (bool, int, float)) "
    "else {k: t for n, w in (v.items() if hasattr(v, 'items') else enumerate(v)) "
    "for k, t in f(w, p + '.' + str(n)).items()} if isinstance(v, (dict, list, tuple)) else {}; "
    "s.save_file(f(torch.load('model.pt', map_location='cpu')), 'model.safetensors')\""
)
_CONVERT = (
    "Nothing is unpickled here, since that can run code. Convert it once where PyTorch and "
    "safetensors are installed and the file is trusted (names of nested dictionaries are joined by "
    "dots, numbers become tensors, tied weights are written twice, texts are left out): "
    + CONVERT_LINE
)


@dataclass(frozen=True)
class Entry:
    """One tensor of a file. ``begin`` and ``end`` count bytes from the start of the data."""

    name: str
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def dtype(self) -> np.dtype:
        return CODES[self.code]


@dataclass(frozen=True)
class Header:
    """What a file says of itself. ``entries`` is in the header's order; ``start`` is where the
    data begin in the file; ``blocks``: the checksums of each entry, ``sums``: the checksum of each
    entry in a file of an older version (both are empty where the file has none)."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    start: int
    sums: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return max((e.end for e in self.entries.values()), default=0)


# --- writing -----------------------------------------------------------------------------------


def build(entries: list[Entry], metadata: dict[str, str], crc32c: list[int] | None) -> bytes:
    """Length and header of a file of ours. ``entries`` are in the order of the data; ``crc32c``:
    the checksums of all their blocks, None for a file without."""
    told = {CRC: _NO_CRC.decode(), "format": "pt", **metadata}
    if crc32c is not None:
        told[BLOCKS] = "".join(f"{s:08x}" for s in crc32c)
    table: dict[str, Any] = {METADATA: told}
    for e in entries:
        offsets = [e.begin, e.end]
        table[e.name] = {"dtype": e.code, "shape": list(e.shape), "data_offsets": offsets}
    text = json.dumps(table, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    raw = len(text).to_bytes(8, "little") + text
    at = 8 + len(_CRC_AT)
    return raw[:at] + b"%08x" % zlib.crc32(raw) + raw[at + 8 :]


# --- reading -----------------------------------------------------------------------------------


def header_length(first: bytes, size: int | None, where: str) -> int:
    """How long the header is, from the first bytes (8 or more) of a file of ``size`` bytes."""
    for magic, kind in _FOREIGN:
        if first.startswith(magic) and not _begins(first, size):
            raise SerializationError(f"{where}: this is {kind}, not a safetensors file. {_CONVERT}")
    if len(first) < 8:
        raise SerializationError(
            f"{where}: {len(first)} bytes; a safetensors file has 10 or more. It is cut short"
        )
    length = int.from_bytes(first[:8], "little")
    if length > HEADER_CAP or length < 2:
        raise SerializationError(
            f"{where}: offset 0: the header is said to have {length} bytes; 2 to {HEADER_CAP} are "
            "allowed. This is no safetensors file, or it is damaged"
        )
    if size is not None and 8 + length > size:
        raise SerializationError(
            f"{where}: offset 0: the header is said to have {length} bytes, but only {size - 8} "
            "follow. The file is cut short or damaged"
        )
    return length


def _begins(first: bytes, size: int | None) -> bool:
    """Whether a file that begins so may be one of this format: a length may have the bytes that
    files of another one begin with (640 those of a pickle)."""
    length = int.from_bytes(first[:8], "little")
    fits = len(first) >= 8 and length <= (HEADER_CAP if size is None else min(HEADER_CAP, size - 8))
    return fits and (first[8:9] or b"{") == b"{"


def parse(raw: bytes, num_bytes: int | None, where: str, alone: bool = True) -> Header:
    """Check ``raw`` (length and header) and ``num_bytes`` of data behind it (None: not known).
    ``alone``: nothing else may follow."""
    with _no_collections():
        return _parse(raw, num_bytes, where, alone)


@contextmanager
def _no_collections() -> Iterator[None]:
    """While many small objects are made that all stay: a collection finds nothing, and looks
    through them again and again, which takes longer than all else."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _parse(raw: bytes, num_bytes: int | None, where: str, alone: bool) -> Header:
    table = _table(raw[8:], where)
    metadata = _metadata(table.pop(METADATA, {}), where)
    ours = any(key.startswith("disttrain") for key in metadata)
    if ours:
        check_header_sum(raw, where)
    entries = {name: _entry(name, value, where) for name, value in table.items()}
    ordered = sorted(entries.values(), key=lambda e: (e.begin, e.end))
    _check_cover(ordered, num_bytes, where, alone or not ours)
    sums: dict[str, int] = {}
    blocks: dict[str, list[int]] = {}
    if ours and SUMS in metadata:
        values = _sums(metadata[SUMS], len(ordered), where)
        sums = {e.name: s for e, s in zip(ordered, values, strict=True)}
    if ours and BLOCKS in metadata:
        counts = [-(-(e.end - e.begin) // BLOCK) for e in ordered]
        rest = iter(_sums(metadata[BLOCKS], sum(counts), where))
        blocks = {e.name: list(islice(rest, n)) for e, n in zip(ordered, counts, strict=True)}
    return Header(entries, metadata, len(raw), sums, blocks)


def _table(text: bytes, where: str) -> dict[str, Any]:
    if text[:1] != b"{":
        raise SerializationError(
            f"{where}: offset 8: the header begins with {text[:8]!r}; '{{' is needed. This is no "
            "safetensors file, or it is damaged"
        )
    return load_json(text, f"{where}: header")


def load_json(text: bytes, where: str, cap: int = ITEM_CAP) -> Any:
    """Parse JSON from a file that nobody vouches for; ``cap``: values in it at most."""

    def refuse(word: str) -> Any:
        raise SerializationError(f"{where}: {word} is no JSON")

    def no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            counts = Counter(k for k, _ in pairs)
            twin = next(k for k, n in counts.items() if n > 1)
            raise SerializationError(f"{where}: the name {twin!r} stands twice")
        return out

    check_items(text, where, cap)
    try:
        return json.loads(text.decode("utf-8"), parse_constant=refuse, object_pairs_hook=no_twins)
    except SerializationError:
        raise
    except RecursionError:
        raise SerializationError(f"{where}: nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, of numbers with thousands of digits
        raise SerializationError(f"{where}: no valid JSON: {error}. The file is damaged") from None


def check_items(text: bytes, where: str, cap: int = ITEM_CAP) -> None:
    """Bound the memory that parsing ``text`` takes, before it is parsed."""
    items = text.count(b",") + text.count(b"[") + text.count(b"{")
    if items > cap:
        raise SerializationError(
            f"{where}: about {items} values outside tensors; at most {cap} are allowed. Keep "
            "long lists of numbers as tensors"
        )


def _metadata(value: dict | int, where: str) -> dict[str, str]:
    if type(value) is dict and all(type(v) is str for v in value.values()):
        return value
    raise SerializationError(f"{where}: {METADATA} must map names to texts")


def _is_count(x: float) -> bool:
    return type(x) is int and 0 <= x < 1 << 63


def _entry(name: str, value: dict | int, where: str) -> Entry:
    if type(value) is dict and len(value) == 3:
        code: Any
        code, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
        if type(offsets) is list and len(offsets) == 2 and type(shape) is list:
            begin, end = offsets
            nbytes = _bytes_of(code, shape)
            known = type(begin) is int and type(end) is int and 0 <= begin and end < 1 << 63
            if known and nbytes == end - begin > 0:
                return Entry(name, code, tuple(shape), begin, end)
    return _odd_entry(name, value, where)


def _bytes_of(code: object, shape: list) -> int:
    """The bytes of a tensor; 0 also where there can be none such."""
    if type(code) is not str or code not in CODES or len(shape) > 64:
        return 0
    nbytes = _ITEMSIZE[code]
    for size in shape:
        if type(size) is not int or size < 0:
            return 0
        nbytes *= size
    return nbytes


def _odd_entry(name: str, value: dict | int, where: str) -> Entry:
    """Of a tensor without elements, or one that cannot be."""
    where = f"{where}: tensor {name!r}"
    if type(value) is not dict or set(value) != {"dtype", "shape", "data_offsets"}:
        raise SerializationError(f"{where}: needs exactly dtype, shape and data_offsets")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if type(code) is not str or code not in CODES:
        raise SerializationError(
            f"{where}: element type {code!r} is not known here; known are {', '.join(CODES)}"
        )
    if type(shape) is not list or len(shape) > 64 or not all(map(_is_count, shape)):
        raise SerializationError(f"{where}: shape {str(shape)[:200]}; sizes must be 0 or more")
    if type(offsets) is not list or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise SerializationError(f"{where}: data_offsets {str(offsets)[:200]}; two are needed")
    begin, end = offsets
    itemsize = CODES[code].itemsize
    if math.prod(max(d, 1) for d in shape) * itemsize >= 1 << 63:
        raise SerializationError(f"{where}: shape {shape} is larger than any memory")
    if end - begin != math.prod(shape) * itemsize:
        raise SerializationError(
            f"{where}: offset {begin}: shape {shape} of {code} takes {math.prod(shape) * itemsize} "
            f"bytes, data_offsets give {end - begin}"
        )
    return Entry(name, code, tuple(shape), begin, end)


def _check_cover(ordered: list[Entry], num_bytes: int | None, where: str, alone: bool) -> None:
    """The tensors must cover the data exactly: no hole, no overlap, nothing behind (``alone``)."""
    at = 0
    for e in ordered:
        if e.begin != at:
            what = "overlaps the tensor before it" if e.begin < at else "leaves a hole before it"
            raise SerializationError(
                f"{where}: tensor {e.name!r}: offset {e.begin}: {what}; {at} is needed"
            )
        at = e.end
    if num_bytes is not None and (at > num_bytes or (alone and at != num_bytes)):
        last = f" (the last is {ordered[-1].name!r})" if ordered else ""
        short = "the file is cut short" if at > num_bytes else "something else follows"
        raise SerializationError(
            f"{where}: offset {min(at, num_bytes)} of the data: the tensors{last} take {at} bytes, "
            f"the file has {num_bytes}: {short}"
        )


def check_header_sum(raw: bytes, where: str) -> None:
    """Does the header of a file of ours, with its length in front, fit its own checksum?"""
    at = 8 + len(_CRC_AT)
    blank = raw[:at] + _NO_CRC + raw[at + 8 :]
    if raw[8:at] == _CRC_AT and b"%08x" % zlib.crc32(blank) == raw[at : at + 8]:
        return
    raise SerializationError(
        f"{where}: offset 0: the header does not fit its checksum. The file is damaged, or another "
        "program changed it; load a copy that is whole"
    )


def _sums(text: str, count: int, where: str) -> list[int]:
    try:
        values = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    except ValueError:
        values = []
    if len(values) != count:
        raise SerializationError(
            f"{where}: {len(values)} checksums where {count} are needed; the file is damaged"
        )
    return values
