"""What travels with a call and its answer, as bytes: the context, the message, what it leads to.

    context | message | flags, lengths | place in the program | which tensors | over | deps, records

``over``: contexts that are. ``deps``: messages whose received tensors these tensors were computed
from, at their sender; None when it did not look. ``records``: the same of other messages that the
receiver may not know of.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_FIXED = struct.Struct("<QQBBHHHH")
NO_GRAD = 1  # the caller records nothing: no answer needs a place in the graph
_UNKNOWN = 2  # deps is None
MOST_NUMBERS = 2000  # of deps and records together; more is left to be asked for


class Header(NamedTuple):
    context: int
    message: int = 0  # 0: no tensor in it has a gradient
    flags: int = 0
    path: tuple[int, ...] = ()
    tensors: tuple[int, ...] = ()  # which of the message's tensors require grad
    deps: tuple[int, ...] | None = ()
    records: Mapping[int, tuple[int, ...]] = {}
    over: Sequence[int] = ()


def pack(h: Header) -> bytes:
    flat: list[int] = list(h.deps or ())
    for message, deps in h.records.items():
        flat += (message, len(deps), *deps)
    flags = h.flags | (_UNKNOWN if h.deps is None else 0)
    lengths = len(h.path), len(h.tensors), len(h.over), len(h.deps or ()), len(flat)
    return _FIXED.pack(h.context, h.message, flags, *lengths) + struct.pack(
        f"<{len(h.path)}I{len(h.tensors)}H{len(h.over) + len(flat)}Q",
        *h.path, *h.tensors, *h.over, *flat,
    )  # fmt: skip


def unpack(data: bytes) -> Header:
    context, message, flags, steps, tensors, over, deps, rest = _FIXED.unpack_from(data)
    numbers = struct.unpack_from(f"<{steps}I{tensors}H{over + rest}Q", data, _FIXED.size)
    flat = numbers[steps + tensors + over :]
    records = {}
    at = deps
    while at < rest:
        n = flat[at + 1]
        records[flat[at]] = flat[at + 2 : at + 2 + n]
        at += 2 + n
    return Header(
        context,
        message,
        flags & ~_UNKNOWN,
        numbers[:steps],
        numbers[steps : steps + tensors],
        None if flags & _UNKNOWN else flat[:deps],
        records,
        numbers[steps + tensors : steps + tensors + over],
    )
