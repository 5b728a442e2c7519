"""What workers tell each other in a backward pass, and what went wrong in one. Plain data."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import AutogradError, PeerFailed

KEEP, RECORD, FAST = 1, 2, 4  # flags of a pass: the graph is kept; create_graph; FAST mode


class Failure(NamedTuple):
    """What happened on ``worker``, for the worker that called ``backward``."""

    worker: int
    name: str
    kind: str
    text: str
    trace: str
    peer: tuple | None  # of a PeerFailed: its rank, cause, traceback, whether it only ended


class Packet(NamedTuple):
    """One message of a pass; on the wire a plain tuple. ``origin``: who called ``backward``.

    ``plan``: all messages that the pass goes back over, told once to every worker. ``items``:
    gradients by message, None where there are none. ``done``: the sender's part is over.
    ``failure``: so is the pass.
    """

    context: int
    number: int
    origin: int
    flags: int
    plan: bytes | None = None
    items: Sequence[tuple[int, Sequence[Any] | None]] = ()
    done: bool = False
    failure: Failure | None = None
    asks: bool = False  # the sender waits for an answer


class Answer(NamedTuple):
    """The answer to a packet that asks: what its sender's part may go on with."""

    items: Sequence[tuple[int, Sequence[Any] | None]] = ()
    done: bool = False
    failure: Failure | None = None


def failure_of(error: BaseException, worker: int, name: str) -> Failure:
    peer = None
    if isinstance(error, PeerFailed):
        peer = (error.rank, error.cause, error.traceback, error.ended)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(worker, name, type(error).__name__, str(error), trace, peer)


def to_raise(failure: Failure, context: int) -> Exception:
    """The exception for who called ``backward``."""
    where = f"backward of distributed autograd context {context}"
    if failure.peer is not None:
        rank, cause, trace, ended = failure.peer
        return PeerFailed(rank, cause, trace, f"{where}, as worker {failure.name!r} found", ended)
    return AutogradError(
        f"Error on Node {failure.worker}: {failure.text}\n"
        f"({failure.kind} on worker {failure.name!r} in the {where}. Its traceback there:\n"
        f"{failure.trace.rstrip()})"
    )
