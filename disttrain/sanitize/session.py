"""What one rank is known to have done: walks, steps, calls of models; checks are told of each.

Knows the order of events and where in the program they come from; not what is wrong with it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .. import context
from ..core import Tensor
from ..core.backward.engine import discard
from ..core.node import AccumulateGrad, Output, next_seq
from ..core.observers import OperationObserver
from ..nn import Module
from ..tree import leaves
from .places import Names, Place, here
from .report import Findings, SanitizeError

SLOT = "sanitize"  # of a rank's context
EVENTS = (
    "before_walk", "after_walk", "before_step", "after_step", "cleared", "enter", "leave", "opened",
    "exhausted", "batch", "scheduled", "clipped", "scaled", "unscaled", "scaler_step", "loss",
    "dropped", "moved", "captured", "called", "sampled", "chosen", "registered",
    "end",
)  # fmt: skip
_MOST_CALLS = 1 << 14
_MOST_INPUTS = 1 << 10  # calls of which the inputs, and their graphs, are kept until a backward


class Walked:
    """One backward, as the program asked for it."""

    def __init__(self, walk: Any, roots: tuple, number: int, place: Place) -> None:
        self.walk: Any = walk
        self.roots, self.number, self.place = roots, number, place
        self.leaves = [n for n in walk.pending if n.__class__ is AccumulateGrad]
        self.reached = {id(t) for n in self.leaves if (t := n.variable) is not None}
        # Gradients that are left in other tensors than the leaves (fully sharded parameters).
        self.elsewhere = any(n.elsewhere for n in self.leaves)
        self.scaled = False  # whether the loss was multiplied by a GradScaler

    def comes_to(self, held: Held) -> bool:
        """Whether parameters of an optimizer get gradients."""
        return self.elsewhere or not held.ids.isdisjoint(self.reached)


class Held:
    """An optimizer, and what was seen of it."""

    def __init__(self, optimizer: Any) -> None:
        self.ref = weakref.ref(optimizer)
        self.name = type(optimizer).__name__
        self.steps = 0
        self.reached = False  # a walk has come to its parameters since its last step
        self.filled = False  # ... and their gradients were not cleared since
        self.ever_reached = False
        self.skipping = False  # a GradScaler has asked for a step since the last one
        self.left: Any = None  # what ``Zeroing`` knows of it
        self.ids: set[int] = set()
        self.params: list[Tensor] = []
        self._size = -1
        self.update()

    def update(self) -> None:
        """Look at the parameters anew, where groups were added."""
        optimizer = self.ref()
        if optimizer is None:
            return
        groups = getattr(optimizer, "param_groups", ())
        size = sum([len(g["params"]) for g in groups])
        if size != self._size:
            self._size = size
            params = [p for g in groups for p in g["params"]]
            self.params = [p for p in params if isinstance(p, Tensor)]  # (some hold remote ones)
            self.ids = {id(p) for p in self.params}


class Call:
    """One call of an outermost module."""

    def __init__(self, root: Module, place: Place, recorded: bool) -> None:
        self._root = weakref.ref(root)
        self.place, self.recorded, self.training = place, recorded, root.training
        self.node: Any = None  # a weak reference to that of its first result that requires grad
        self.walked = False

    @property
    def root(self) -> Module:
        """The module; an empty one when it is gone."""
        return self._root() or _GONE


_GONE = Module()


class Session:
    """Of one thread of a rank: that which began it, or another which is the first to train."""

    def __init__(self, findings: Findings, checks: Iterable[Callable[[Session], Any]]) -> None:
        self.findings = findings
        self.thread = threading.get_ident()
        self.names = Names()
        self.walks = self.steps = 0
        self.held: dict[int, Held] = {}
        self.stack: list[Module] = []
        self.calls: list[Call] = []  # of outermost modules, since gradients were cleared
        # [first seq, last seq, module], and nodes that it is given where ``inputs`` says so.
        self.inner: deque[list] = deque(maxlen=_MOST_CALLS)
        self.inputs = False
        self.last: Walked | None = None
        self.loader: Any = None  # a weak reference to that of the batch that came last
        self.failed: list[Exception] = []  # of checks
        self.busy = False  # a check looks on: what it does itself is no event
        self.on: dict[str, list[Callable]] = {name: [] for name in EVENTS}
        self.checks: list[Any] = []
        self._use(checks)

    def _use(self, checks: Iterable[Callable[[Session], Any]]) -> None:
        """Tell these checks, too."""
        for make in checks:
            if any(type(check) is make for check in self.checks):
                continue
            check = make(self)
            self.checks.append(check)
            for name in EVENTS:
                if hasattr(check, name):
                    self.on[name].append(getattr(check, name))

    def share(self, findings: Findings, checks: Iterable[Callable[[Session], Any]]) -> None:
        """Let one more have what is found from now on."""
        self.findings.listeners.append(findings)
        self._use(checks)

    def is_here(self) -> bool:
        """Whether the calling thread is looked at; the first that trains is, if none does yet."""
        me = threading.get_ident()
        if self.thread != me and not (self.walks or self.steps or self.stack):
            self.thread = me
        return self.thread == me

    def tell(self, name: str, *args: Any) -> None:
        """Tell all checks of an event."""
        handlers = self.on[name]
        if self.busy or not handlers:
            return
        self.busy = True
        try:
            for each in handlers:
                try:
                    each(*args)
                except SanitizeError:
                    raise
                except Exception as error:  # a check must not end what it looks at
                    self._leave_out(each, error)
        finally:
            self.busy = False

    def _leave_out(self, each: Any, error: Exception) -> None:
        """A check has failed: the program goes on without it."""
        check = each.__self__
        self.failed.append(error)
        for name, handlers in self.on.items():
            self.on[name] = [h for h in handlers if getattr(h, "__self__", None) is not check]
        kind = type(error).__name__
        self.findings.note(f"{type(check).__name__} looks no longer: {kind}: {error}")

    def add(self, kind: str, place: Place, text: str) -> bool:
        """Tell of a finding."""
        return self.findings.add(kind, place, text, self.steps + 1)

    # -- optimizers ----------------------------------------------------------------------------

    def optimizer(self, optimizer: Any) -> Held:
        """What is known of an optimizer."""
        found = self.held.get(id(optimizer))
        if found is None or found.ref() is not optimizer:
            found = self.held[id(optimizer)] = Held(optimizer)
        found.update()
        return found

    def holders(self) -> list[Held]:
        """All optimizers that live."""
        found = [h for h in self.held.values() if h.ref() is not None]
        if len(found) < len(self.held):
            self.held = {k: h for k, h in self.held.items() if h.ref() is not None}
        return found

    def before_step(self, optimizer: Any, args: tuple = (), kwargs: Any = None) -> None:
        held = self.optimizer(optimizer)
        self.tell("before_step", optimizer, held, bool(args or kwargs))

    def after_step(self, optimizer: Any, *rest: Any) -> None:
        held = self.optimizer(optimizer)
        held.steps += 1
        held.skipping = False
        self.steps = max(self.steps, held.steps)
        self.tell("after_step", optimizer, held)
        held.reached = False
        self.calls.clear()

    def cleared(self, ids: set[int]) -> None:
        """The program has cleared gradients."""
        self.tell("cleared", ids)
        for held in self.held.values():
            if held.filled and not held.ids.isdisjoint(ids):
                held.filled = False
        if self.calls:
            self.calls = [
                c for c in self.calls
                if not c.walked or ids.isdisjoint([id(p) for p in c.root.parameters()])
            ]  # fmt: skip

    # -- walks ---------------------------------------------------------------------------------

    def before_walk(self, walk: Any, roots: tuple) -> Walked | None:
        """A backward begins; None for one that leaves ``.grad`` alone."""
        if walk.sink is discard or self.busy or context.thread.depth:
            return None
        self.walks += 1
        found = self.last = Walked(walk, roots, self.walks, here())
        for call in self.calls:
            node = None if call.node is None else call.node()
            if node is not None and node in walk.pending:
                call.walked = True
        self.tell("before_walk", found)
        return found

    def after_walk(self, found: Walked) -> None:
        for held in self.holders():
            if found.comes_to(held):
                held.reached = held.filled = held.ever_reached = True
        self.tell("after_walk", found)
        self.inner.clear()
        found.walk, found.roots = None, ()  # which keep a graph

    # -- modules -------------------------------------------------------------------------------

    def enter(self, module: Module, args: tuple, kwargs: dict) -> Any:
        """A module is called; what ``leave`` is given."""
        stack, call = self.stack, None
        if not stack:
            self.names.roots.add(module)
            call = Call(module, here(), context.thread.grad_enabled)
            self.tell("enter", call, args, kwargs)
        stack.append(module)
        row = [next_seq(), 0, module]
        if context.thread.grad_enabled:
            self.inner.append(row)
            if self.inputs and len(self.inner) < _MOST_INPUTS:
                row.append([node_of(t) for t in tensors([*args, *kwargs.values()])])
        return row, call

    def leave(self, module: Module, row: list, call: Call | None, out: Any) -> None:
        """It has given ``out`` (None: it has raised)."""
        stack = self.stack
        while stack and stack.pop() is not module:
            pass
        row[1] = next_seq()
        if call is None:
            return
        if out is not None and call.recorded:
            self._result(call, out)
            if len(self.calls) < _MOST_CALLS:
                self.calls.append(call)
        self.tell("leave", call, out)

    def _result(self, call: Call, out: Any) -> None:
        for t in tensors(out):
            node = None if t.is_leaf else node_of(t)
            if node is not None:
                call.node = weakref.ref(node)
                return

    def module_of(self, node: Any) -> Module | None:
        """The innermost module in whose call a node was made."""
        best = None
        for row in self.inner:
            inside = row[0] < node.seq and (node.seq < row[1] or not row[1])
            if inside and (best is None or row[0] > best[0]):
                best = row
        return None if best is None else best[2]


def tensors(value: Any, most: int = 8) -> list[Tensor]:
    """The tensors in a nest of containers, at most so many."""
    if isinstance(value, Tensor):
        return [value]
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)][:most]


def node_of(value: Any) -> Any:
    """The node of the first tensor in a nest of containers that has one."""
    for t in tensors(value):
        edge = t.graph_node() if t.requires_grad else None
        if edge is not None:
            return edge.node if edge.__class__ is Output else edge
    return None


def active() -> Session | None:
    """The calling rank's, where the calling thread is the one that is looked at."""
    found: Session | None = context.thread.rank.slots.get(SLOT)
    if found is None or found.thread != threading.get_ident() or found.busy:
        return None
    for interp in context.thread.stack:  # what captures and transforms do is no step of training
        if not isinstance(interp, OperationObserver):
            return None
    return found


def adopt() -> None:
    """The calling thread trains: it is looked at from now on, if no other trains yet."""
    found: Session | None = context.thread.rank.slots.get(SLOT)
    if found is not None and not found.busy:
        found.is_here()


__all__ = [
    "EVENTS", "SLOT", "Call", "Held", "Session", "Walked", "active", "adopt", "node_of", "tensors",
]  # fmt: skip
