"""Contexts: what a worker keeps of one distributed forward and backward.

A context has a number whose upper 16 bits are the worker that began it. Other workers keep a part
of it under the same number, from the first call that carries it until it is released. A part holds
the send and receive nodes, whom this worker called, and the gradients of leaves.

``Current`` is a thread's place in one: the context, and a path that says which call of which call
the thread is handling. Paths order messages as the program has them, whichever way they raced.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ...context import at_thread_start, drawn, thread
from ...core.backward.sink import store_grad
from ...core.tensor import Tensor
from ...errors import AutogradError
from ..calls.agent import Agent
from ..calls.current import current_agent
from .nodes import RecvRpcBackward, SendRpcBackward

WORKER_SHIFT = 48
MOST_ON_ONE_WORKER = (1 << WORKER_SHIFT) - 1
ANSWER = (1 << 32) - 1  # the last step of an answer's path: behind all calls of its handler
_TICK = 12  # ids begin with the time in about 4 microseconds, of which 47 bits are 18 years
_REMEMBERED = 10_000  # released contexts whose late messages are known as such


class Gradient:
    """The gradient of one leaf. Looks to ``store_grad`` as the leaf does, whose own is left."""

    __slots__ = ("_grad", "leaf")

    def __init__(self, leaf: Tensor) -> None:
        self.leaf = leaf
        self._grad: Tensor | None = None

    @property
    def array(self) -> Any:
        return self.leaf.array

    def add(self, g: Tensor, tensors: bool) -> None:
        """Add ``g``, which is this worker's own."""
        if self._grad is None:
            self._grad = g
        else:
            store_grad(self, g if tensors or g.array.__class__ is not np.ndarray else g.array)


class DistAutogradContext:
    """This worker's part of one context."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.RLock()
        self.sends: dict[int, SendRpcBackward] = {}
        self.recvs: dict[int, RecvRpcBackward] = {}
        self.workers: set[int] = set()  # that this one has called in it
        self.gradients: dict[Tensor, Gradient] = {}
        self._latest: dict[int, tuple[list[Gradient], dict[Tensor, Tensor], bool]] = {}
        self.known: dict[int, tuple[int, ...] | None] = {}  # where others' messages lead
        self.looks = True  # whether answers are looked through for what they lead to
        self.parts: dict[int, Any] = {}  # backward passes that this worker has a part in
        self.ended: set[int] = set()  # passes that were given up, whose messages may still come
        self.released = False

    def _context_id(self) -> int:
        return self.number

    def _send_functions(self) -> dict[int, SendRpcBackward]:
        return self.sends

    def _recv_functions(self) -> dict[int, RecvRpcBackward]:
        return self.recvs

    def _known_worker_ids(self) -> set[int]:
        return set(self.workers)

    def __repr__(self) -> str:
        return f"<DistAutogradContext {self.number} of worker {self.number >> WORKER_SHIFT}>"

    def get(self, leaf: Tensor) -> Tensor | None:
        """The gradient of ``leaf``."""
        with self.lock:
            self._settle()
            kept = self.gradients.get(leaf)
        return None if kept is None else kept._grad

    def all(self) -> dict[Tensor, Tensor]:
        """The gradients of all leaves that have one."""
        with self.lock:
            self._settle()
            found = self.gradients.items()
            return {leaf: kept._grad for leaf, kept in found if kept._grad is not None}

    def add(
        self, number: int, gradients: list[Gradient], put: dict[Tensor, Tensor], tensors: bool
    ) -> None:
        """Add the gradients of pass ``number`` to those that are there; those in ``put`` take their
        place. They can be withdrawn until somebody asks for gradients, or another pass comes: this
        worker is not told when a pass is over everywhere."""
        with self.lock:
            self._settle()
            if number not in self.ended:
                self._latest[number] = gradients, put, tensors

    def withdraw(self, number: int) -> None:
        """Pass ``number`` has failed on some worker: let its gradients here be as they were."""
        with self.lock:
            self.ended.add(number)
            self._latest.pop(number, None)

    def _settle(self) -> None:
        latest, self._latest = self._latest, {}
        for gradients, put, tensors in latest.values():
            for leaf, grad in put.items():
                kept = self.gradients[leaf] = Gradient(leaf)
                kept._grad = grad
            for fresh in gradients:
                if fresh._grad is None:
                    continue
                kept = self.gradients.setdefault(fresh.leaf, fresh)
                if kept is not fresh:
                    kept.add(fresh._grad, tensors)


class Contexts:
    """All contexts that a worker has a part in. Kept with its agent."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.lock = threading.Lock()
        self.by_number: dict[int, DistAutogradContext] = {}
        self._released: OrderedDict[int, None] = OrderedDict()
        self.go_on: Callable[[Any, Any, bool], None]  # see ``passes``
        self.owed: dict[int, list[int]] = {}  # workers that are to hear that contexts are over
        self.sweeping = False  # whether a thread looks after that
        self.lost: dict[int, Any] = {}  # workers that are gone, as they were known
        self.worker_of: Callable[[int], Any] = self.lost.get  # as they are known now
        self.ask_about: Callable[[list[int]], None]  # see ``service``
        first = worker << WORKER_SHIFT
        self.last = first + MOST_ON_ONE_WORKER
        # A worker that joins again under the same number does not begin at the same place.
        now = (time.time_ns() >> _TICK) & (MOST_ON_ONE_WORKER >> 1)
        first += drawn("contexts", now)
        self.next_context = itertools.count(first + 1).__next__
        self.next_message = itertools.count(first + 1).__next__
        self.next_pass = itertools.count(first + 1).__next__

    def begin(self) -> DistAutogradContext:
        new = DistAutogradContext(self.next_context())
        self.by_number[new.number] = new
        return new

    def find(self, number: int) -> DistAutogradContext:
        """``AutogradError`` where this worker has no part in ``number``."""
        found = self.by_number.get(number)
        if found is None:
            if not isinstance(number, int):
                raise TypeError(
                    "incompatible function arguments. The id of a context of distributed autograd "
                    f"is needed, an int; {type(number).__name__} was given"
                )
            over = " (it was released)" if number in self._released else ""
            raise AutogradError(
                f"Could not find autograd context with id: {number}{over}. Use the id that "
                "`with distributed.autograd.context() as context_id` gives, inside of the block"
            )
        return found

    def meet(self, number: int, peer: int) -> DistAutogradContext | None:
        """The context of a message of ``peer``, begun here if need be; None when it is over."""
        found = self.by_number.get(number)
        if found is None:
            with self.lock:
                if not number or number in self._released or self.is_lost(number >> WORKER_SHIFT):
                    return None
                found = self.by_number.get(number)
                if found is None:
                    found = self.by_number[number] = DistAutogradContext(number)
            if self.is_lost(peer):  # who would have said when it is over
                self.ask_about([number])
        return found

    def is_lost(self, worker: int) -> bool:
        """Whether a worker is gone, and none has come in its place."""
        was = self.lost.get(worker)
        return was is not None and self.worker_of(worker) is was

    def take(self, number: int) -> DistAutogradContext | None:
        """Forget ``number``, for good; None where it was not here."""
        with self.lock:
            found = self.by_number.pop(number, None)
            self._released[number] = None
            if len(self._released) > _REMEMBERED:
                self._released.popitem(last=False)
        if found is not None:
            found.released = True
        return found

    def owe(self, worker: int, number: int) -> bool:
        """``worker`` is to hear that ``number`` is over; whether somebody must begin to sweep."""
        with self.lock:
            self.owed.setdefault(worker, []).append(number)
            begin, self.sweeping = not self.sweeping, True
        return begin

    def take_owed(self, worker: int) -> list[int]:
        """What ``worker`` is to hear, which it does now."""
        if not self.owed:
            return []
        with self.lock:
            return self.owed.pop(worker, [])


class Current:
    """The place of a thread in a context. ``quiet``: who called it records nothing."""

    __slots__ = ("calls", "context", "path", "quiet")

    def __init__(
        self, context: DistAutogradContext, path: tuple[int, ...] = (), quiet: bool = False
    ) -> None:
        self.context, self.path, self.quiet, self.calls = context, path, quiet, 0


def _begin_thread() -> None:
    thread.autograd_place = None


at_thread_start(_begin_thread)

SLOT = "rpc.autograd"


def contexts_of(agent: Agent) -> Contexts:
    return agent.slot(SLOT, lambda: Contexts(agent.me.id))


def current_contexts() -> Contexts:
    return contexts_of(current_agent())
