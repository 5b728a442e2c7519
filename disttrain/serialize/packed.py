"""One value as bytes in memory: what stands between the tensors of a checkpoint.

Values without arrays are one line of JSON; others, what ``save`` makes of them. Either way it is
data, and nothing is unpickled.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from .api import load, save
from .decoding import decode
from .layout import load_json
from .objects import Known
from .structure import encode

_FIRST = b'{"disttrain.value":'


def pack(obj: Any) -> bytes:
    """``obj`` as bytes. ``SerializationError`` says what of it cannot be saved."""
    encoded = encode(obj)
    if not encoded.arrays:
        text = json.dumps(encoded.tree, separators=(",", ":"), allow_nan=False)
        return _FIRST + text.encode() + b"}"
    out = io.BytesIO()
    save(obj, out)
    return out.getvalue()


def unpack(data: bytes, where: str, classes: Sequence[Any] = ()) -> Any:
    """The value that ``pack`` was given; classes must be allowed, as for ``load``."""
    if not data.startswith(_FIRST):
        return load(io.BytesIO(data), classes=classes)
    tree = load_json(data, where)["disttrain.value"]

    def give(kind: str, name: str) -> Any:
        raise KeyError(f"{kind} {name!r:.60}, which is not there")

    return decode(tree, give, where, Known(classes, False))
