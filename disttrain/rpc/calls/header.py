"""What travels before the payload of a call: how deep it is nested in others, and what riders say.

    depth u16 | for every rider that says something: its place u8, length u32, its bytes

A call from a program that no rider accompanies has an empty head. Pure functions on bytes.
"""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager
from typing import Protocol

from ...core.tensor import Tensor
from ...errors import CommError

_DEPTH = struct.Struct("<H")
_SAID = struct.Struct("<BI")
CARRIED = 255  # the place of the carrier, after that of every rider


class Rider(Protocol):
    """Something that travels with calls and their answers. Distributed autograd is one.

    ``leaving(peer, tensors, answers)`` runs before a request (on the caller) or an answer
    (``answers``; on the callee) goes to worker ``peer``: what is to be said to the rider there, and
    the tensors to send in the place of ``tensors``; or None, to say nothing. The answer to a
    request that its rider said nothing with goes without it.

    ``arriving(peer, data, tensors, answers)``: the tensors as the program is to see them.

    ``during(peer, data)`` is around the handler of a request, and around the packing of its answer.
    """

    def leaving(
        self, peer: int, tensors: list[Tensor], answers: bool
    ) -> tuple[bytes, list[Tensor]] | None: ...

    def arriving(
        self, peer: int, data: bytes, tensors: list[Tensor], answers: bool
    ) -> list[Tensor]: ...

    def during(self, peer: int, data: bytes) -> AbstractContextManager: ...


class Carrier(Protocol):
    """Whoever sees to objects that a worker sends to another while both keep them (RRefs are such).

    A message says which ones it carries (``CARRIED``) before its payload, so the receiver hears of
    each of them though the payload cannot be read, or nobody waits for the answer any more.

    ``leaving(peer, objects)``: what is to be said of them to worker ``peer``; ``unsent(data)`` when
    that was not sent. ``arriving(peer, data, answers)``: the objects as they are here; for an
    answer it must not wait, nor send. ``ready(objects)`` is called before a handler sees what came
    with its request, and may wait.
    """

    def leaving(self, peer: int, objects: list) -> bytes: ...

    def unsent(self, data: bytes) -> None: ...

    def arriving(self, peer: int, data: bytes, answers: bool) -> list: ...

    def ready(self, objects: list) -> None: ...


def write_head(depth: int, said: list[tuple[int, bytes]]) -> bytes:
    """``said``: (place among the agent's riders, what it says)."""
    parts = [_DEPTH.pack(depth)]
    for place, data in said:
        parts += [_SAID.pack(place, len(data)), data]
    return b"".join(parts)


def read_head(head: bytes, riders: int) -> tuple[int, list[tuple[int, bytes]]]:
    """The depth, and (place, data) of every rider; ``riders``: how many there are here."""
    if not head:
        return 0, []
    try:
        (depth,) = _DEPTH.unpack_from(head)
        said, at = [], _DEPTH.size
        while at < len(head):
            place, length = _SAID.unpack_from(head, at)
            at += _SAID.size
            said.append((place, bytes(head[at : at + length])))
            at += length
    except struct.error:
        at = -1
    if at != len(head) or any(riders <= place != CARRIED for place, _ in said):
        raise CommError(
            f"a message whose head of {len(head)} bytes cannot be read: its sender runs another "
            "version of this package, or has other parts of it loaded"
        )
    return depth, said


def carried_in(said: list[tuple[int, bytes]]) -> bytes:
    """What the carrier says, taken out of ``said``."""
    for i, (place, data) in enumerate(said):
        if place == CARRIED:
            del said[i]
            return data
    return b""
