"""The header of an operation: what a rank calls, from where, and whether that fits its peers.

Every operation of a group carries a fingerprint of 40 bytes which peers compare before any data
moves:

    seq u64 | op u8, dtype u8, reduce op u8, flags u8, root i32 | numel u64 | shape u64 | line u64

``shape`` hashes the group (name and epoch) and what else must agree. Which line a rank calls from,
and how it has shaped its elements, is its own affair: equal calls from two branches are legal. Both
stand in the text of the call, which is shown when something does differ.

In a *strict* group ``shape`` hashes the shape, too, and ``line`` the calling line, so that two
equal calls that meet by accident (a skipped or swapped one) are told apart at once. It is 0, which
fits everything, where even then ranks call from different lines: the root of a rooted operation, a
barrier, a message.

This file knows bytes and texts: no transport, no shared memory.
"""

from __future__ import annotations

import copy
import os
import re
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import DTypeError

OPS = (
    "barrier",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "reduce_scatter",
    "scatter",
    "all_to_all",
    "split",
    "close",
    "send",
    "recv",
)
OP_CODE = {name: i for i, name in enumerate(OPS)}

DTYPES = tuple(
    np.dtype(t)
    for t in (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", ml_dtypes.bfloat16, "float32", "float64", "complex64", "complex128"),
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
        *(ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu),
    )
)
# ``dtype.num`` differs between processes for registered types, so a code of our own crosses.
DTYPE_CODE = {d: i for i, d in enumerate(DTYPES)}

RAGGED = 1  # flag: sizes differ between ranks and are checked pair by pair
STRICT = 2  # flag: lines and shapes must agree
CARRIES = 4  # flag: ``shape`` also hashes values that must be equal on all ranks
VALUES = "values"  # the field that differs where these do

_TAIL = struct.Struct("<BBBBiQQQ")
TAIL_BYTES = _TAIL.size
SIZE = 8 + TAIL_BYTES
TEXT_BYTES = 440
_FULL = struct.Struct("<QBBBBiQQQ")
_FIELDS = ("position", "op", "dtype", "reduce op", "kind", "root", "numel", "shape", "line")
_SHAPE_AT, _FLAGS_AT = 16, 3  # in a tail
_WHICH = re.compile(r"\(operation (\d+), ([a-z ]+) differs\):")


def hash64(text: str) -> int:
    """A stable 64-bit hash, never 0."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") or 1


def dtype_code(dtype: np.dtype) -> int:
    """The code of an element type in headers; ``DTypeError`` where it cannot be sent."""
    try:
        return DTYPE_CODE[dtype]
    except KeyError:
        names = ", ".join(d.name for d in DTYPES)
        raise DTypeError(
            f"communication: an array of dtype {dtype} was given; needed is one of {names}, "
            "in the machine's byte order. Convert it first."
        ) from None


class Site:
    """One calling line: its text for people and a hash that does not depend on where it lies."""

    __slots__ = ("code", "line", "text")

    def __init__(self, code, lineno: int) -> None:
        self.code = code
        self.text = f"{code.co_filename}:{lineno} in {code.co_name}"
        name = os.path.basename(code.co_filename)
        self.line = hash64(f"{name}:{lineno}:{code.co_qualname}")


class Call:
    """What one rank calls: the fingerprint without its sequence number, and the text of it."""

    __slots__ = ("counts", "mark", "op", "plan", "tail", "text", "told")

    def __init__(
        self,
        op: str,
        *,
        shown: str = "",
        args: str = "",
        site: str = "",
        dtype: np.dtype | None = None,
        reduce_code: int = 0,
        flags: int = 0,
        root: int = -1,
        numel: int = 0,
        common: str = "",
        line: int = 0,
    ) -> None:
        """``shown``, ``args``, ``site`` are for the reader; ``common``: what else must agree."""
        self.op = op
        code = 255 if dtype is None else dtype_code(dtype)
        self.tail = _TAIL.pack(
            OP_CODE[op], code, reduce_code, flags, root, numel, hash64(common), line
        )
        self.text = f"{shown or op}({args}) at {site}"
        self.told = _clip(self.text)
        self.plan: Any = None  # where a transport keeps what it prepared for this call
        self.counts, self.mark = True, b""  # in the black box: is it a collective; what it says

    def carrying(self, digest: int, told: str) -> Call:
        """The same call, whose header also says what this rank has for values that must be equal:
        their ``digest``, and ``told`` for the reader. It fits no call that carries others."""
        made = copy.copy(self)
        tail = bytearray(self.tail)
        tail[_FLAGS_AT] |= CARRIES
        mixed = digest ^ int.from_bytes(tail[_SHAPE_AT : _SHAPE_AT + 8], "little")
        tail[_SHAPE_AT : _SHAPE_AT + 8] = mixed.to_bytes(8, "little")
        made.tail, made.plan = bytes(tail), None
        what, at, site = self.text.rpartition(" at ")
        made.text = f"{what} after same({told}){at}{site}"
        made.told = _clip(made.text)
        return made


def _clip(text: str) -> bytes:
    """The text as it stands in a header slot: length u16, then at most ``TEXT_BYTES`` of utf-8.

    A long text loses its middle: the operation and the end of the line both matter.
    """
    data = text.encode()
    if len(data) > TEXT_BYTES:
        half = TEXT_BYTES // 2 - 4
        data = data[:half] + b" ... " + data[-half:]
    return len(data).to_bytes(2, "little") + data


def told_text(slot: bytes) -> str:
    """The text that ``Call.told`` was made from, as far as it fitted."""
    size = int.from_bytes(slot[:2], "little")
    return slot[2 : 2 + size].decode(errors="replace")


def describe_array(dtype: np.dtype, shape: Sequence[int]) -> str:
    return f"{dtype.name}[{', '.join(map(str, shape))}]"


def difference(fingerprints: Sequence[bytes]) -> str:
    """The first field in which the fingerprints of a group do not fit, or ``""``.

    Every rank gives the same answer, since it looks at all of them and not at its own only.
    """
    columns = zip(*(_FULL.unpack(f) for f in fingerprints), strict=True)
    for name, values in zip(_FIELDS, columns, strict=True):
        different = set(values)
        if name == "line":
            different.discard(0)
        if len(different) > 1:
            return _named(name, fingerprints)
    return ""


def _named(field: str, fingerprints: Sequence[bytes]) -> str:
    """What to call the field: two of them also say which values ranks have checked."""
    flags = {f[8 + _FLAGS_AT] for f in fingerprints}
    if field == "kind" and len({f & ~CARRIES for f in flags}) == 1:
        return "use of same"
    if field == "shape" and all(f & CARRIES for f in flags):
        return VALUES
    return field


def differing_field(text: str) -> tuple[int, str]:
    """The number of the operation and the field that ``mismatch_text`` has named in ``text``; 0 and
    "" where it is no text of its kind."""
    found = _WHICH.search(text)
    return (int(found[1]), found[2]) if found else (0, "")


_ADVICE = {
    "line": "The group is strict: the arguments agree but the lines differ, so ranks have probably "
    "skipped or swapped a call. If these lines are meant to meet, do not make the group strict.",
    "kind": "Make the group strict on every rank or on none, and give sizes on all or on none.",
    "dtype": "Convert the arrays to one dtype.",
    "numel": "Give arrays of one size.",
    "shape": "Give the same arguments on the same group (and one shape, if the group is strict).",
    "root": "Name the same root on every rank.",
    "use of same": "Some ranks have called same() or same_step() before this call and others have "
    "not: every rank of a group must do so at the same place.",
    VALUES: "Values that same() was given must be equal on all ranks of the group.",
    "reduce op": "Give the same op= on every rank.",
}


def mismatch_text(where: str, seq: int, field: str, calls: dict[int, str]) -> str:
    """The message of ``CollectiveMismatch``: ``calls`` is rank -> text of its call.

    Ranks that called the same are named together; the smallest group of ranks, the likely
    culprit, comes last.
    """
    lines = list_calls(calls)
    advice = _ADVICE.get(field, "Every rank of a group must make the same calls in one order.")
    head = f"{where}: ranks called operations that do not fit (operation {seq}, {field} differs):"
    return "\n".join([head, *lines, advice])


def list_calls(calls: dict[int, str]) -> list[str]:
    """A line for each different call, the most frequent one first."""
    by_text: dict[str, list[int]] = {}
    for rank, text in sorted(calls.items()):
        by_text.setdefault(text, []).append(rank)
    parts = sorted(by_text.items(), key=lambda item: (-len(item[1]), item[1]))
    return [f"  {name_ranks(ranks)} called {text}" for text, ranks in parts]


def name_ranks(ranks: Sequence[int]) -> str:
    """``rank 3`` or ``ranks 0, 2, 5``; long lists are cut."""
    shown = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
