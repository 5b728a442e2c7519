"""What ranks on other nodes do: memory of a node's launcher that ``top`` reads, and asks by.

Whoever looks says so in it (``want``), for some seconds; the node's keeper then asks the others,
and puts here what they tell. So nothing listens, and nothing is sent while nobody looks: who may
open the launcher's descriptor may look.

    0     magic, until when it is wanted (seconds of the host's monotonic clock), count
    4096  two places, of which the one with the number of ``count`` is whole: length, JSON
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from ..errors import CommError

WANTED = 5.0  # seconds for which one wish holds
MOST_BYTES = 16 << 20  # of what all nodes tell
_MAGIC = 0x64747261696E6E64
_HEAD, _LENGTH = struct.Struct("<QdQ"), struct.Struct("<Q")
_WANTED_AT, _COUNT_AT, _AT = 8, 16, 4096


def create() -> int:
    """The memory, as a descriptor."""
    fd = os.memfd_create("disttrain-nodes", os.MFD_CLOEXEC)
    os.ftruncate(fd, _AT + 2 * (_LENGTH.size + MOST_BYTES))
    os.pwrite(fd, _HEAD.pack(_MAGIC, 0.0, 0), 0)
    return fd


def want(fd: int, until: float) -> None:
    """Ask for what the other nodes tell, until a moment of the monotonic clock."""
    os.pwrite(fd, struct.pack("<d", until), _WANTED_AT)


def is_wanted(fd: int, now: float) -> bool:
    """Does anybody look?"""
    (until,) = struct.unpack("<d", os.pread(fd, 8, _WANTED_AT))
    return now < until <= now + 2 * WANTED


def put(fd: int, data: bytes) -> None:
    """What the nodes tell now; too much of it is left out."""
    if len(data) > MOST_BYTES:
        return
    (count,) = struct.unpack("<Q", os.pread(fd, 8, _COUNT_AT))
    os.pwrite(fd, _LENGTH.pack(len(data)) + data, _place(count + 1))
    os.pwrite(fd, struct.pack("<Q", count + 1), _COUNT_AT)


def get(fd: int) -> tuple[int, list[dict[str, Any]]]:
    """What was put last, and how often something was. Raises ``CommError`` where it is none."""
    head = os.pread(fd, _HEAD.size, 0)
    if len(head) < _HEAD.size or _HEAD.unpack(head)[0] != _MAGIC:
        raise CommError("what the other nodes tell cannot be read: it is of another version")
    for _ in range(3):
        count = _HEAD.unpack(os.pread(fd, _HEAD.size, 0))[2]
        if not count:
            return 0, []
        place = _place(count)
        (length,) = _LENGTH.unpack(os.pread(fd, _LENGTH.size, place))
        data = os.pread(fd, min(length, MOST_BYTES), place + _LENGTH.size)
        if _HEAD.unpack(os.pread(fd, _HEAD.size, 0))[2] <= count + 1:
            try:
                told = json.loads(data)
            except ValueError:
                continue
            return count, [each for each in told if isinstance(each, dict)]
    return 0, []


def _place(count: int) -> int:
    return _AT + count % 2 * (_LENGTH.size + MOST_BYTES)
