"""One value as bytes in memory: what stands between the tensors of a checkpoint.

Values without arrays are one line of JSON; others, what ``save`` makes of them. Either way it is
data, nothing is unpickled, and ``load`` reads it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from . import line
from .api import load, save
from .objects import Known
from .structure import encode


def pack(obj: object) -> bytes:
    """``obj`` as bytes. ``SerializationError`` says what of it cannot be saved."""
    encoded = encode(obj)
    if not encoded.arrays:
        return line.write(encoded.tree)
    out = io.BytesIO()
    save(obj, out)
    return out.getvalue()


def unpack(data: bytes, where: str, classes: Sequence[Any] = ()) -> Any:
    """The value that ``pack`` was given; classes must be allowed, as for ``load``."""
    if line.is_line(data):
        return line.read(data, where, Known(classes, False))
    return load(io.BytesIO(data), classes=classes)
