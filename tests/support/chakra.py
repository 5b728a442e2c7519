"""Reads Chakra traces: protobuf's wire format, and the numbers of fields of et_def.proto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers of fields and their values, of varints and of what has a length."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        else:
            assert key & 7 == 2, "another kind of field"
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
    assert at == len(data)


def _attribute(data: bytes) -> tuple[str, Any]:
    found = dict(fields(data))
    (value,) = (v for number, v in found.items() if number not in (1, 2))
    return found[1].decode(), value.decode() if isinstance(value, bytes) else value


def _node(data: bytes) -> dict[str, Any]:
    node: dict[str, Any] = {"ctrl_deps": [], "data_deps": [], "attr": {}, "id": 0, "start": 0}
    names = {1: "id", 3: "type", 6: "start", 7: "took"}
    for number, value in fields(data):
        if number == 2:
            node["name"] = value.decode()
        elif number in (4, 5):
            node["ctrl_deps" if number == 4 else "data_deps"].append(value)
        elif number == 10:
            name, content = _attribute(value)
            node["attr"][name] = content
        else:
            node[names[number]] = value
    return node


def read(path: str | Path) -> tuple[str, list[dict[str, Any]]]:
    """The schema's version, and the nodes."""
    data, at = Path(path).read_bytes(), 0
    messages = []
    while at < len(data):
        size, at = _varint(data, at)
        messages.append(data[at : at + size])
        at += size
    head = dict(fields(messages[0]))
    return head[1].decode(), [_node(m) for m in messages[1:]]
