"""What each verb of a transport takes from a rank's arrays and brings into them. Pure.

What a rank's own array gives to its own output is neither: it is copied again (``own``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends.llvm.kernels.digest import digest
from ..values import mixed


class Moved(NamedTuple):
    """``given``: what the rank gives; ``got``: where what comes from others goes; ``own``: (output,
    input) of what goes to the rank itself; ``key``: what tells messages of a group apart."""

    given: Sequence[Any]
    got: Sequence[Any] = ()
    own: tuple[Any, Any] | None = None
    key: str = ""


def _others(arrays: Sequence[Any], rank: int) -> list[Any]:
    return [a for i, a in enumerate(arrays) if i != rank]


def _broadcast(rank: int, array: Any, root: int) -> Moved:
    return Moved([array]) if rank == root else Moved([], [array])


def _all_gather(rank: int, outs: Sequence[Any], array: Any) -> Moved:
    return Moved([array], _others(outs, rank), (outs[rank], array))


def _all_to_all(rank: int, outs: Sequence[Any], ins: Sequence[Any]) -> Moved:
    return Moved(ins, _others(outs, rank), (outs[rank], ins[rank]))


VERBS: dict[str, Callable[..., Moved]] = {
    "barrier": lambda rank: Moved([]),
    "broadcast": _broadcast,
    "all_reduce": lambda rank, array, op: Moved([array], [array]),
    "all_gather": _all_gather,
    "reduce_scatter": lambda rank, out, ins, op: Moved(ins, [out]),
    "all_to_all": _all_to_all,
    "send": lambda rank, array, dst, tag: Moved([array], key=f"to {dst} tag {tag}"),
    "recv": lambda rank, array, src, tag: Moved([], [array], key=f"from {src} tag {tag}"),
}


def hash_of(arrays: Sequence[Any]) -> str:
    """Of all of them; nothing where they are none."""
    found = [digest(a).hash for a in arrays if a.size]
    return f"{found[0] if len(found) == 1 else mixed(*found):016x}" if found else ""


def raw(array: Any) -> Any:
    """The bytes of a flat array, as an array that shares them."""
    return array.view(np.uint8)


def fill(arrays: Sequence[Any], data: memoryview) -> bool:
    """Put ``data`` into the arrays, one behind the other; False where it is not as long."""
    if sum(a.nbytes for a in arrays) != len(data):
        return False
    at = 0
    for a in arrays:
        if a.size:
            raw(a)[:] = np.frombuffer(data, np.uint8, a.nbytes, at)
            at += a.nbytes
    return True


def copy_own(moved: Moved) -> None:
    """What the rank sends to itself."""
    if moved.own is not None:
        out, array = moved.own
        if out is not array and out.size and out.size == array.size:
            out[...] = array


__all__ = ["VERBS", "Moved", "copy_own", "fill", "hash_of", "raw"]
