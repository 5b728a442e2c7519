"""JSON from anywhere into Python's values, within limits; and back into JSON. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from .refusal import Refused

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OPEN, _CLOSE = b"[{", b"]}"
_WRITER = json.JSONEncoder(separators=(",", ":"))
_READER = json.JSONDecoder()


def read(text: bytes, longest: int, deepest: int) -> dict[str, Any]:
    """The object that ``text`` is. Raises ``Refused``."""
    if len(text) > longest:
        raise Refused(413, f"JSON of {len(text)} bytes; the limit is {longest}: send tensors in "
                           "binary (Inference-Header-Content-Length)")  # fmt: skip
    if depth_bound(text) > deepest and depth_bound(_STRING.sub(b"", text)) > deepest:
        raise Refused(400, f"JSON nested more than {deepest} deep")
    try:
        # (what starts so is UTF-8: a guess that ``loads`` makes anew each time)
        usual = text[:1] == b"{" and text[1:2] != b"\0"
        found = _READER.decode(str(text, "utf-8")) if usual else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not valid JSON: {error}") from None
    if type(found) is not dict:
        raise Refused(400, "the body is JSON, but no object")
    return found


def depth_bound(text: bytes) -> int:
    """No value in ``text`` is nested deeper; exact where no string has brackets in it."""
    opened = text.count(b"[") + text.count(b"{")
    if opened < 16:
        return opened
    codes = np.frombuffer(text, np.uint8)
    steps = np.zeros(len(codes), np.int8)
    for signs, step in ((_OPEN, 1), (_CLOSE, -1)):
        for sign in signs:
            steps[codes == sign] = step
    return int(np.cumsum(steps[steps != 0], dtype=np.int64).max(initial=0))


def write(value: object) -> bytes:
    """``value`` as JSON, in ASCII. Numbers that are none are NaN and Infinity, as Python and
    JavaScript spell them, and as they are read."""
    return _WRITER.encode(value).encode("ascii")


def write_numbers(values: list) -> str:
    """A list of numbers as JSON: what ``write`` makes of it, at half the time."""
    text = str(values).replace(", ", ",")
    return write(values).decode("ascii") if "n" in text else text  # nan, inf
