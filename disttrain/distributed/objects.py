"""Plain Python data as bytes: what the ``*_object`` collectives carry. Nothing is unpickled.

One type byte, then the value. None, bool, int, float, complex, str, bytes, list, tuple, dict, set,
numpy arrays and Tensors; nesting at most ``MAX_DEPTH``. Anything else is a ``DTypeError`` that says
where it stands.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..comm.count import Count
from ..comm.group import ProcessGroup
from ..core import dtypes
from ..core.tensor import Tensor, wrap
from ..errors import CommError, DTypeError

MAX_DEPTH = 32
_INT, _FLOAT, _SIZE = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<Q")


def encode(obj: Any) -> np.ndarray:
    """``obj`` as an array of bytes."""
    out = bytearray()
    _put(obj, out, "object", 0)
    return np.frombuffer(bytes(out), np.uint8)


def decode(data: np.ndarray) -> Any:
    """The object that ``encode`` was given."""
    raw = data.tobytes()
    try:
        value, end = _get(raw, 0, 0)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CommError(f"object collective: the bytes received are damaged: {error}") from None
    if end != len(raw):
        raise CommError(f"object collective: {len(raw) - end} bytes too many were received")
    return value


def _sized(kind: bytes, raw: bytes) -> bytes:
    return kind + _SIZE.pack(len(raw)) + raw


def _put(obj: Any, out: bytearray, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise DTypeError(f"object collective: {where} is nested deeper than {MAX_DEPTH} levels")
    if obj is None or obj is True or obj is False:
        out += {None: b"N", True: b"T", False: b"F"}[obj]
    elif type(obj) in (int, Count):
        fits = -(1 << 63) <= obj < 1 << 63
        out += b"i" + _INT.pack(obj) if fits else _sized(b"I", str(obj).encode())
    elif type(obj) is float:
        out += b"f" + _FLOAT.pack(obj)
    elif type(obj) is complex:
        out += b"c" + _FLOAT.pack(obj.real) + _FLOAT.pack(obj.imag)
    elif type(obj) is str:
        out += _sized(b"s", obj.encode())
    elif isinstance(obj, (bytes, bytearray)):
        out += _sized(b"b", bytes(obj))
    elif isinstance(obj, (Tensor, np.ndarray, np.generic)):
        _put_array(obj, out)
    elif isinstance(obj, dict):
        out += b"d" + _SIZE.pack(len(obj))
        for key, value in obj.items():
            _put(key, out, f"a key of {where}", depth + 1)
            _put(value, out, f"{where}[{key!r}]", depth + 1)
    elif isinstance(obj, (list, tuple, set, frozenset)):
        kind = b"l" if isinstance(obj, list) else b"t" if isinstance(obj, tuple) else b"S"
        out += kind + _SIZE.pack(len(obj))
        for i, value in enumerate(sorted(obj, key=repr) if kind == b"S" else obj):
            _put(value, out, f"{where}[{i}]", depth + 1)
    else:
        raise DTypeError(
            f"object collective: {where} is a {type(obj).__name__}; plain data is needed (None, "
            "bool, numbers, str, bytes, lists, tuples, dicts, sets, arrays, tensors); send its "
            "parts"
        )


def _put_array(obj: Any, out: bytearray) -> None:
    tensor = isinstance(obj, Tensor)
    array = np.asarray(obj.detach().array if tensor else obj)
    name = dtypes.of(array.dtype).name.encode()
    out += (b"X" if tensor else b"A") + _SIZE.pack(len(name)) + name + _SIZE.pack(array.ndim)
    for n in array.shape:
        out += _SIZE.pack(n)
    out += array.tobytes()


def _take(raw: bytes, at: int) -> tuple[bytes, int]:
    (n,) = _SIZE.unpack_from(raw, at)
    at += 8
    if n > len(raw) - at:
        raise ValueError(f"{n} bytes announced, {len(raw) - at} left")
    return raw[at : at + n], at + n


def _get(raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH + 1:
        raise ValueError("nested too deeply")
    kind = raw[at : at + 1]
    at += 1
    if kind in (b"N", b"T", b"F"):
        return {b"N": None, b"T": True, b"F": False}[kind], at
    if kind == b"i":
        return _INT.unpack_from(raw, at)[0], at + 8
    if kind == b"f":
        return _FLOAT.unpack_from(raw, at)[0], at + 8
    if kind == b"c":
        return complex(*struct.unpack_from("<dd", raw, at)), at + 16
    if kind in (b"I", b"s", b"b"):
        data, at = _take(raw, at)
        return (data if kind == b"b" else data.decode() if kind == b"s" else int(data)), at
    if kind in (b"A", b"X"):
        return _get_array(raw, at, kind == b"X")
    (n,) = _SIZE.unpack_from(raw, at)
    at += 8
    if n > len(raw) - at:
        raise ValueError(f"{n} elements announced, {len(raw) - at} bytes left")
    values = []
    for _ in range(2 * n if kind == b"d" else n):
        value, at = _get(raw, at, depth + 1)
        values.append(value)
    if kind == b"d":
        return dict(zip(values[::2], values[1::2], strict=True)), at
    if kind not in (b"l", b"t", b"S"):
        raise ValueError(f"unknown type byte {kind!r}")
    return {b"l": list, b"t": tuple, b"S": set}[kind](values), at


def _get_array(raw: bytes, at: int, tensor: bool) -> tuple[Any, int]:
    name, at = _take(raw, at)
    (ndim,) = _SIZE.unpack_from(raw, at)
    if ndim > 64:
        raise ValueError(f"{ndim} dimensions announced")
    shape = struct.unpack_from(f"<{ndim}Q", raw, at + 8)
    at += 8 + 8 * ndim
    kind = dtypes.as_dtype(name.decode()).np
    count = 1
    for n in shape:
        count *= n
    if count * kind.itemsize > len(raw) - at:
        raise ValueError(f"{count} elements announced, {len(raw) - at} bytes left")
    array = np.frombuffer(raw, kind, count, at).reshape(shape).copy()
    return (wrap(array) if tensor else array), at + count * kind.itemsize


def all_gather(group: ProcessGroup, obj: Any) -> list[Any]:
    """Every rank's object, by rank."""
    mine = encode(obj)
    sizes = np.empty(group.size, np.int64)
    group.all_gather_single(sizes, np.array([mine.size], np.int64))
    outs = [np.empty(int(n), np.uint8) for n in sizes]
    group.all_gather(outs, mine)
    return [decode(data) for data in outs]


def gather(group: ProcessGroup, obj: Any, root: int) -> list[Any] | None:
    """Every rank's object, by rank, on rank ``root``; None on the others."""
    mine = encode(obj)
    sizes = np.empty(group.size, np.int64)
    group.all_gather_single(sizes, np.array([mine.size], np.int64))
    outs = [np.empty(int(n), np.uint8) for n in sizes] if group.rank == root else None
    group.gather(mine, outs, root)
    return None if outs is None else [decode(data) for data in outs]


def broadcast(group: ProcessGroup, obj: Any, root: int) -> Any:
    """The root's object, on every rank."""
    payload = encode(obj) if group.rank == root else np.empty(0, np.uint8)
    size = np.array([payload.size], np.int64)
    group.broadcast(size, root)
    if group.rank != root:
        payload = np.empty(int(size[0]), np.uint8)
    group.broadcast(payload, root)
    return obj if group.rank == root else decode(payload)


def send(group: ProcessGroup, obj: Any, to: int, tag: int = 0) -> None:
    """Send an object to rank ``to``, which takes it by ``recv``: its length, then its bytes."""
    payload = encode(obj)
    group.send(np.array([payload.size], np.int64), to, tag)
    group.send(payload, to, tag)


def recv(group: ProcessGroup, source: int | None, tag: int = 0) -> tuple[Any, int]:
    """The object that rank ``source`` (None: any) sent by ``send``, and that rank."""
    size = np.empty(1, np.int64)
    source = group.recv(size, source, tag)
    payload = np.empty(int(size[0]), np.uint8)
    group.recv(payload, source, tag)
    return decode(payload), source
