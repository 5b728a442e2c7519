"""What goes over a link between two ranks: frames, one behind the other. Pure data.

    frame = kind u8, 0 u8, words u16, index u32, where u64, size u64 | words x (place u64, value
            u64) | size bytes

A PUT writes ``size`` bytes at ``where`` of the segment and then, in their order, the words: the
receiver's copy of what the sender has in its own memory (see ``mirror``). DATA brings piece
``index`` of operation ``where`` to whom it was asked from. NEWS says that a rank has failed, BYE
that the sender will say nothing more, WORD_OF what it says of who goes on (see ``agreement``).
PULSE means nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from ...job.segment import CAUSE_BYTES, TRACE_BYTES, Failure

HEAD = struct.Struct("<BBHIQQ")
WORD = struct.Struct("<QQ")
PUT, DATA, NEWS, BYE, PULSE, WORD_OF = range(1, 7)
MOST_NEWS = 4 * (CAUSE_BYTES + TRACE_BYTES)
DROPPED, MET, ENDED = range(3)
PULSE_FRAME = HEAD.pack(PULSE, 0, 0, 0, 0, 0)


def put(where: int, size: int, words: Sequence[tuple[int, int]] = ()) -> bytes:
    """The head of a PUT; its ``size`` bytes follow."""
    head = HEAD.pack(PUT, 0, len(words), 0, where, size)
    return head + b"".join([WORD.pack(place, value) for place, value in words])


def data(operation: int, index: int, size: int) -> bytes:
    """The head of a DATA; its ``size`` bytes follow."""
    return HEAD.pack(DATA, 0, 0, index, operation, size)


def news(failure: Failure) -> bytes:
    """The whole frame that tells of a failure."""
    told = {"rank": failure.rank, "cause": failure.cause, "traceback": failure.traceback}
    body = json.dumps(told).encode()
    return HEAD.pack(NEWS, 0, 0, 0, 0, len(body)) + body


def read_news(body: bytes) -> Failure:
    """What ``news`` has told. Raises ``ValueError`` where it makes no sense."""
    told = json.loads(body)
    if not isinstance(told, dict):
        raise ValueError("no object")
    rank, cause, traceback = told.get("rank"), told.get("cause"), told.get("traceback")
    if not (isinstance(rank, int) and isinstance(cause, str) and isinstance(traceback, str)):
        raise ValueError("no failure")
    return Failure(rank, cause, traceback)


def bye(how: int) -> bytes:
    """The last frame: the sender has DROPPED its groups, has MET the others, or has ENDED its
    program."""
    return HEAD.pack(BYE, 0, 0, how, 0, 0)


def word_of(body: bytes) -> bytes:
    """The whole frame of what a rank says of who goes on."""
    return HEAD.pack(WORD_OF, 0, 0, 0, 0, len(body)) + body


def operation_key(group: int, seq: int) -> int:
    """Names one operation of one group. ``group``: a hash of its name."""
    return (group & 0xFFFFFFFF) << 32 | seq & 0xFFFFFFFF
