"""One value without arrays as a line of JSON: what is small stays small, and is data all the same.

Knows how values are described; knows no file.
"""

from __future__ import annotations

import json
from typing import Any

from .decoding import decode
from .layout import load_json
from .objects import Known

_FIRST = b'{"disttrain.value":'


def write(tree: object) -> bytes:
    """The line of an encoded value (``structure.encode``) without arrays."""
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    return _FIRST + text.encode() + b"}"


def is_line(data: bytes | memoryview) -> bool:
    """Are these bytes such a line? The files of ``save`` begin otherwise."""
    return bytes(data[: len(_FIRST)]) == _FIRST


def read(data: bytes, where: str, known: Known) -> Any:
    """The value of a line."""
    tree = load_json(data, where)["disttrain.value"]

    def give(kind: str, name: str) -> Any:
        raise KeyError(f"{kind} {name!r:.60}, which is not there")

    return decode(tree, give, where, known)
