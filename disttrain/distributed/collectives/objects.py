"""The ``*_object`` collectives: plain data between the ranks of a group (see ``plain``).

Large data is written once, where the others read it, and taken apart where it has arrived. Knows
groups; the form of the bytes is ``plain``'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...comm.group.group import ProcessGroup
from ...errors import CommError
from .plain import MAX_DEPTH, decode, encode, join, take_apart

__all__ = ["MAX_DEPTH", "all_gather", "broadcast", "decode", "encode", "gather", "recv", "scatter",
           "send"]  # fmt: skip

_NOTHING = object()
_SHARED = 1 << 20  # bytes from which on memory of the group is worth its while


def _encoded(group: ProcessGroup, obj: object) -> np.ndarray:
    """``obj`` as bytes, in memory from which the group moves them best."""
    parts = take_apart(obj)
    if sum(map(len, parts)) >= _SHARED:
        try:
            return join(parts, group.empty)
        except CommError:
            pass  # there is not so much of it
    return join(parts, np.empty)


def _sizes(group: ProcessGroup, mine: np.ndarray) -> list[int]:
    sizes = np.empty(group.size, np.int64)
    group.all_gather_single(sizes, np.array([mine.size], np.int64))
    return sizes.tolist()


def all_gather(group: ProcessGroup, obj: object) -> list[Any]:
    """Every rank's object, by rank."""
    mine = _encoded(group, obj)
    outs = [np.empty(n, np.uint8) for n in _sizes(group, mine)]
    outs[group.rank] = mine
    group.all_gather(outs, mine)
    return _decoded(outs, mine)


def _decoded(outs: list[np.ndarray], mine: np.ndarray) -> list[Any]:
    """The objects of all ranks; their bytes are given up one after the other."""
    values: list[Any] = []
    for i, data in enumerate(outs):
        outs[i] = data[:0]
        values.append(decode(data, give=data is not mine))
    return values


def gather(group: ProcessGroup, obj: object, root: int) -> list[Any] | None:
    """Every rank's object, by rank, on rank ``root``; None on the others."""
    mine = _encoded(group, obj)
    sizes = _sizes(group, mine)
    outs = [np.empty(n, np.uint8) for n in sizes] if group.rank == root else None
    group.gather(mine, outs, root)
    return None if outs is None else _decoded(outs, mine)


def _nobody(group: ProcessGroup, root: int | None, default: object) -> Any:
    """What a rank without peers gets in place of another one's object."""
    if default is _NOTHING:
        who = "another rank" if root is None else f"rank {group.ranks[root]}"
        raise CommError(
            f"group {group.name}: an object of {who} is needed here, and this rank has no peers "
            f"(backend {group.transport.kind}). Play that rank, or run with peers"
        )
    return default


def broadcast(group: ProcessGroup, obj: object, root: int, default: object = _NOTHING) -> Any:
    """The root's object, on every rank. ``default``: for a rank without peers."""
    if group.rank != root and not group.transport.hears:
        return _nobody(group, root, default)
    payload = _encoded(group, obj) if group.rank == root else np.empty(0, np.uint8)
    size = np.array([payload.size], np.int64)
    group.broadcast(size, root)
    if group.rank != root:
        payload = np.empty(int(size[0]), np.uint8)
    group.broadcast(payload, root)
    return obj if group.rank == root else decode(payload, give=True)


def scatter(
    group: ProcessGroup, objs: list[Any] | None, root: int, default: object = _NOTHING
) -> Any:
    """``objs[rank]`` of rank ``root``. ``default``: for a rank without peers."""
    if group.rank != root and not group.transport.hears:
        return _nobody(group, root, default)
    size, parts, sizes = np.empty(1, np.int64), None, None
    if group.rank == root:
        parts = [_encoded(group, obj) for obj in objs or ()]
        sizes = [np.array([part.size], np.int64) for part in parts]
    group.scatter(size, sizes, root)
    mine = np.empty(int(size[0]), np.uint8)
    group.scatter(mine, parts, root)
    return decode(mine, give=True)


def send(group: ProcessGroup, obj: object, to: int, tag: int = 0) -> None:
    """Send an object to rank ``to``, which takes it by ``recv``: its length, then its bytes."""
    payload = encode(obj)
    group.send(np.array([payload.size], np.int64), to, tag)
    group.send(payload, to, tag)


def recv(
    group: ProcessGroup, source: int | None, tag: int = 0, default: object = _NOTHING
) -> tuple[Any, int]:
    """The object that rank ``source`` (None: any) sent by ``send``, and that rank. ``default``: for
    a rank without peers."""
    if not group.transport.hears:
        return _nobody(group, source, default), 0 if source is None else source
    size = np.empty(1, np.int64)
    source = group.recv(size, source, tag)
    payload = np.empty(int(size[0]), np.uint8)
    group.recv(payload, source, tag)
    return decode(payload, give=True), source
