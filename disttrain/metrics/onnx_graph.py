"""The graph of an ONNX file as a ``GraphDef`` message. Field numbers are those of ``onnx.proto``;
nothing but the protobuf wire format is known here, and every length is doubted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import SerializationError
from ..protobuf import integer, nested, string
from .graphs import versions

_GRAPH, _NODE, _INPUT, _OUTPUT = 7, 1, 11, 12  # of a model, and of its graph


def definition(path: str | Path) -> bytes:
    """The message for the file ``path``: a node for each input, result and operation."""
    try:
        graph = _fields(_fields(Path(path).read_bytes())[_GRAPH][0])
        nodes = [_value(v) for v in (*graph[_INPUT], *graph[_OUTPUT])]
        nodes += [_operation(node) for node in graph[_NODE]]
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise SerializationError(
            f"add_onnx_graph: {path}: no model in ONNX's format ({error}); needed is a file that "
            "onnx.save or torch.onnx.export has written"
        ) from None
    return b"".join(nested(1, node) for node in nodes) + versions()


def _value(raw: bytes) -> bytes:
    """An input or a result: its name, element type and sizes."""
    value = _fields(raw)
    tensor = _fields(_fields(value[2][0])[1][0]) if value[2] else defaultdict(list)
    dims = _fields(tensor[2][0])[1] if tensor[2] else []
    sizes = [next(iter(_fields(d)[1]), 0) for d in dims]
    shape = b"".join(nested(2, integer(1, n)) for n in sizes)
    out = string(1, _text(value[1][0])) + string(2, "Variable")
    out += _attribute("dtype", integer(6, next(iter(tensor[1]), 0)))
    return out + _attribute("shape", nested(7, shape))


def _operation(raw: bytes) -> bytes:
    """An operation under the name of its first result."""
    node = _fields(raw)
    out = string(1, _text(node[2][0])) + string(2, _text(node[4][0]))
    out += b"".join(string(3, _text(name)) for name in node[1])
    told = ", ".join(_told(_fields(a)) for a in node[5])
    return out + _attribute("parameters", nested(2, told.encode()))


def _told(attribute: dict[int, list]) -> str:
    """An attribute of an operation: its name and what stands in it."""
    parts = [v for number, found in sorted(attribute.items()) for v in found if number != 20]
    return " = ".join(_text(p) if isinstance(p, bytes) else str(p) for p in parts)


def _attribute(name: str, value: bytes) -> bytes:
    return nested(5, string(1, name) + nested(2, value))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _fields(raw: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: whole numbers and bytes."""
    out: dict[int, list[Any]] = defaultdict(list)
    for number, value in _read(raw):
        out[number].append(value)
    return out


def _read(raw: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield key >> 3, value
            continue
        size, at = _varint(raw, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > len(raw):
            raise ValueError(f"{size} bytes from byte {at} of {len(raw)}")
        yield key >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = raw[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(f"a number without end before byte {at}")
