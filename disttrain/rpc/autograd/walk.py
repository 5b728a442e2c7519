"""One worker's walk in a distributed backward: fed when gradients arrive, idle in between.

``FedWalk`` starts at the roots (on the worker that called ``backward``) and at send nodes. It is
run, goes idle when nothing more is complete, is fed and run again. Gradients that reach a received
tensor are handed to ``post``; so is the news that none will come.

Gradients of several messages may arrive in any order. So that sums have the same bits every time,
what arrives at a node is added in an order that the graph alone gives: from the latest message to
the earliest, and within the reach of one message from the latest node to the earliest, which is the
order in which one walk would run them. What comes early waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...context import thread
from ...core.backward.engine import Walk
from ...core.grad_mode import set_state
from ...core.node import Output
from .nodes import RecvRpcBackward, SendRpcBackward


def received_below(entries: Iterable[Any], seen: set, limit: int = 1 << 62) -> list | None:
    """The receive nodes that ``entries`` (nodes) lead to, those in ``seen`` left out; None when
    there are more than ``limit`` nodes. ``seen`` grows by what was looked at."""
    found = []
    stack = []
    for entry in entries:
        entry = entry.node if entry.__class__ is Output else entry
        if entry not in seen:
            seen.add(entry)
            stack.append(entry)
    while stack:
        node = stack.pop()
        if node.__class__ is RecvRpcBackward:
            found.append(node)
            continue
        for e in node.edges:
            if e is None:
                continue
            if e.__class__ is Output:
                e = e.node
            if e not in seen:
                seen.add(e)
                stack.append(e)
        if len(seen) > limit:
            return None
    return found


class FedWalk(Walk):
    """A walk from ``roots`` and from ``sends``, which are fed in any order.

    ``post(recv, gradients)``: gradients (arrays or Tensors, or None each) for the sender of a
    received message; ``gradients`` itself is None when none came.
    """

    def __init__(
        self,
        roots: Sequence[Any],
        sends: Sequence[SendRpcBackward],
        sink: Callable[[Any, Any, bool], None],
        post: Callable[[RecvRpcBackward, tuple | None], None],
        *,
        keep: bool,
        tensors: bool,
        record: bool,
    ) -> None:
        super().__init__((), sink, keep=keep, tensors=tensors)
        self.post, self.record = post, record
        self.lines: dict[Any, _Line] | None = None
        order = []
        for i, entry in enumerate(sorted(sends, key=_place)):
            order += [(i, node) for node in self._count([entry])]
        order += [(len(sends), node) for node in self._count(roots)]
        if len(sends) > 1:  # else one walk's own order is the same every time
            self._arrange(order)

    def _arrange(self, order: list[tuple[int, Any]]) -> None:
        """Say for every node with several inputs in which order they are added."""
        inputs: dict[Any, list] = {}
        pending = self.pending
        for label, node in order:
            for slot, e in enumerate(node.edges):
                if e is not None:
                    e = e.node if e.__class__ is Output else e
                    if pending[e] > 1:
                        inputs.setdefault(e, []).append((-label, -node.seq, slot, node))
        self.lines = {e: _Line(them) for e, them in inputs.items()}

    def feed_send(self, send: SendRpcBackward, gradients: Sequence[Any] | None) -> None:
        """The gradients of the tensors that left at ``send`` (None: there are none)."""
        for i, g in enumerate(gradients or ()):
            if g is not None:
                self._add(send, i, g, True)
        self._arrive(send)

    def ship(self, recv: RecvRpcBackward, gradients: tuple | None) -> None:
        self.post(recv, gradients)

    @property
    def busy(self) -> bool:
        """Whether something else is ready to run, other than gradients that are to be sent."""
        return bool(self.ready) and self.ready[0][2].__class__ is not RecvRpcBackward

    def advance(self) -> None:
        """Run what is complete. Called by one thread at a time."""
        outermost = thread.walk is None
        if outermost:
            thread.walk = self
        around, thread.walking = thread.walking, self
        thread.depth += 1
        before = thread.grad_enabled
        set_state({"grad_enabled": self.record})
        try:
            self._run()
        finally:
            set_state({"grad_enabled": before})
            thread.walking = around
            thread.depth -= 1
            if outermost:
                thread.walk = None

    def finish(self) -> None:
        """Everything has run: do what was asked for by ``on_finish``."""
        self._call(self.callbacks)

    def abandon(self) -> None:
        """Something raised, here or elsewhere."""
        self._call(self.broken)

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        around, thread.walk = thread.walk, self
        try:
            for callback in callbacks:
                callback()
        finally:
            thread.walk = around

    def _run(self) -> None:
        if self.lines is not None:
            self._run_general()
        else:
            super()._run()

    def _deliver(self, node: Any, g: Any, results: tuple) -> None:
        lines = self.lines
        if lines is None:
            super()._deliver(node, g, results)
            return
        for slot, (e, r) in enumerate(zip(node.edges, results, strict=True)):
            if e is None:
                continue
            target, index = (e.node, e.index) if e.__class__ is Output else (e, 0)
            line = lines.get(target)
            what = (index, r, r is not None and self._is_lent(node, g, r, results))
            if line is not None:
                line.take(self, target, (node, slot), what)
            elif r is not None:
                self._add(target, *what)
            self.pending[target] -= 1
            if not self.pending[target]:
                self._arrive(target)


class _Line:
    """What arrives at one node, in its order."""

    __slots__ = ("early", "next", "order")

    def __init__(self, inputs: list[tuple[int, int, int, Any]]) -> None:
        inputs.sort(key=_by_order)
        self.order = [(node, slot) for _, _, slot, node in inputs]
        self.next = 0
        self.early: dict[tuple[Any, int], tuple[int, Any, bool]] = {}

    def take(
        self, walk: FedWalk, target: object, source: tuple[Any, int], what: tuple[int, Any, bool]
    ) -> None:
        order, early = self.order, self.early
        if order[self.next] != source:
            early[source] = what
            return
        while True:
            if what[1] is not None:
                walk._add(target, *what)
            self.next += 1
            if not early or self.next == len(order) or order[self.next] not in early:
                return
            what = early.pop(order[self.next])


def _by_order(entry: tuple) -> tuple:
    return entry[:3]


def _place(send: SendRpcBackward) -> tuple:
    return (send.path, send.message)
