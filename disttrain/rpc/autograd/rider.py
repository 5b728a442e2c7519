"""What travels with calls and answers within a context: a place in the graph on both sides.

Where a message takes tensors along that require grad, its sender keeps a send node and its receiver
a receive node of one number. An answer also says which messages it was computed from, so that a
backward pass need not ask (``plan``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ...context import drawn, thread
from ...core.tensor import Tensor, wrap
from .contexts import ANSWER, Contexts, Current, DistAutogradContext
from .header import MOST_NUMBERS, NO_GRAD, Header, pack, unpack
from .nodes import RecvRpcBackward, SendRpcBackward
from .plan import closure
from .walk import received_below

_MOST_LOOKED_AT = 1000  # nodes below an answer: more are looked at when a backward asks for it
_MOST_STEPS = 64  # of a path


class AutogradRider:
    """Distributed autograd's part in the calls of one worker. ``release(number, peer)``: what to do
    when ``peer`` says that a context is over."""

    def __init__(self, contexts: Contexts, release: Callable[[int, int], Any]) -> None:
        self.contexts, self.release = contexts, release
        self._read: tuple[bytes, Header] = b"", Header(0)  # what was read last: it is asked twice

    def _header(self, data: bytes) -> Header:
        read = self._read
        if read[0] is not data:
            read = self._read = data, unpack(data)
        return read[1]

    def leaving(
        self, peer: int, tensors: Sequence[Tensor], answers: bool
    ) -> tuple[bytes, list[Tensor]] | None:
        place = thread.autograd_place
        over = () if answers or not self.contexts.owed else self.contexts.take_owed(peer)
        if place is None or place.context.released:
            return (pack(Header(0, over=over)), list(tensors)) if over else None
        context = place.context
        if not answers and peer != self.contexts.worker:
            context.workers.add(peer)
        quiet = place.quiet if answers else not thread.grad_enabled
        which = () if quiet else _with_grad(tensors)
        if not which:
            if answers:
                return None
            flags = NO_GRAD if quiet else 0
            path = self._path(place, answers)
            return pack(Header(context.number, 0, flags, path, over=over)), list(tensors)
        path = self._path(place, answers)
        # Threads take numbers in any order; a replay gives each call the one that peers know.
        message = drawn(f"message {context.number} {path}", self.contexts.next_message())
        send = SendRpcBackward([tensors[i] for i in which], message, path)
        deps, records = _look(context, send, peer) if answers else (None, {})
        context.sends[message] = send
        header = Header(context.number, message, 0, path, which, deps, records, over)
        return pack(header), [wrap(t.array) if t._node is not None else t for t in tensors]

    def _path(self, place: Current, answers: bool) -> tuple[int, ...]:
        if answers:
            return (*place.path, ANSWER)
        place.calls += 1
        if len(place.path) >= _MOST_STEPS:  # such calls are no longer told apart
            return place.path
        return (*place.path, place.calls)

    def arriving(
        self, peer: int, data: bytes, tensors: list[Tensor], answers: bool
    ) -> list[Tensor]:
        h = self._header(data)
        context = self.contexts.meet(h.context, peer)
        if context is None or not h.message:
            return tensors
        node = RecvRpcBackward(h.context, h.message, peer, self.contexts.go_on)
        node.take([tensors[i] for i in h.tensors])
        context.recvs[h.message] = node
        context.known[h.message] = h.deps
        for message, deps in h.records.items():
            context.known.setdefault(message, deps)
        return tensors

    def during(self, peer: int, data: bytes) -> AbstractContextManager:
        h = self._header(data)
        for number in h.over:
            self.release(number, peer)
        context = self.contexts.meet(h.context, peer)
        return within(context, h.path, bool(h.flags & NO_GRAD))


class within:
    """Be in ``context`` (None: in none), at ``path``."""

    __slots__ = ("_before", "_place")

    def __init__(
        self, context: DistAutogradContext | None, path: tuple[int, ...] = (), quiet: bool = False
    ) -> None:
        self._place = None if context is None else Current(context, path, quiet)

    def __enter__(self) -> None:
        self._before = thread.autograd_place
        thread.autograd_place = self._place

    def __exit__(self, *exc: object) -> None:
        thread.autograd_place = self._before


def _with_grad(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([i for i, t in enumerate(tensors) if t.graph_node() is not None])


def _look(context: DistAutogradContext, send: SendRpcBackward, peer: int) -> tuple[Any, Any]:
    """Where an answer's tensors lead: the messages, and what ``peer`` may not know of those."""
    deps = _leads_to(context, send)
    if deps is None:
        return None, {}

    def of(message: int) -> Sequence[int] | None:
        more = context.known.get(message)
        if more is None and message in context.sends:  # this worker's own
            more = context.known[message] = _leads_to(context, context.sends[message])
        return more

    return deps, closure(deps, of, peer, MOST_NUMBERS - len(deps))


def _leads_to(context: DistAutogradContext, send: SendRpcBackward) -> tuple[int, ...] | None:
    """The messages that what leaves at ``send`` was computed from; None: too much to look at."""
    found = received_below([send], set(), _MOST_LOOKED_AT) if context.looks else None
    if found is None or len(found) > MOST_NUMBERS:
        context.looks = False  # it would be so for later ones, too
        return None
    return tuple(sorted({node.message for node in found}))
