"""Gradients: zeroed in time, there when a step wants them, and of parameters that are stepped."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from ..core import Tensor
from ..core.node import AccumulateGrad, Output
from ..nn import Parameter
from ..optim.optimizer import Optimizer
from .places import NOWHERE, Place, here, listed
from .session import Held, Session, Walked
from .values import is_zero, sample, version_of

_SEVERAL = 2  # steps in a row that show a habit
_SAMPLE = 8  # parameters that are looked at
_FIRST = 6  # steps in which gradients are looked at for what the program has written into them


class Zeroing:
    """gradients-never-zeroed: a step's gradients go into the next step's."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def after_step(self, optimizer: Any, held: Held) -> None:
        left = held.left
        if left is None:
            left = held.left = _Left()
        elif left.closure:
            self._count(left, held)  # the backward was run by the step
        if left.params is not held.params:
            left.params = held.params
            left.few = sorted(held.params[:64], key=lambda p: p.numel())[:_SAMPLE]
        left.grads = [
            (p, p._grad, version_of(p._grad)) for p in left.few if p._grad is not None
        ]  # fmt: skip
        left.place = None

    def cleared(self, ids: set[int]) -> None:
        for held in self.session.held.values():
            left = held.left
            if left is not None and any(id(row[0]) in ids for row in left.grads):
                left.grads, left.place, left.times = [], None, 0

    def before_walk(self, found: Walked) -> None:
        for held in self.session.held.values():
            left = held.left
            if left is None or not left.grads:
                continue
            reached = [row for row in left.grads if id(row[0]) in found.reached]
            if not reached:
                continue
            if left.place is None:
                if left.is_stale(reached):
                    left.place = found.place
                else:
                    left.grads, left.times = [], 0
            elif any(p._grad is None or (left.times and is_zero(p._grad)) for p, _, _ in reached):
                left.grads, left.place, left.times = [], None, 0

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        left = held.left
        if left is not None:
            left.closure = closure
            if not closure:
                self._count(left, held)

    def _count(self, left: _Left, held: Held) -> None:
        if left.place is None:
            return
        left.times += 1
        if left.times >= _SEVERAL:
            text = f"{held.name} steps with gradients that still hold those of earlier steps"
            self.session.add("gradients-never-zeroed", left.place, text)


class _Left:
    """The gradients that a step has left, and where a backward has added to them."""

    def __init__(self) -> None:
        self.params: list[Tensor] = []
        self.few: list[Tensor] = []  # of these the smallest
        self.grads: list[tuple[Tensor, Tensor, int]] = []
        self.place: Place | None = None
        self.times = 0
        self.closure = False  # the last step was given one

    def is_stale(self, rows: list) -> bool:
        """Whether nobody has touched them since."""
        same = all(p._grad is g and version_of(g) == version for p, g, version in rows)
        return same and not all(is_zero(g) for _, g, _ in rows)


class Order:
    """Whether a step finds the gradients of the backward that was run for it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lost: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.early: weakref.WeakSet[Any] = weakref.WeakSet()
        self.apart: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.walks: list[bool] = []  # since the last step: whether they came to any optimizer
        self.made: weakref.WeakKeyDictionary[Any, tuple] = weakref.WeakKeyDictionary()

    def after_walk(self, found: Walked) -> None:
        holders = self.session.holders()
        if len(self.walks) < 1 << 12:
            self.walks.append(any(found.comes_to(h) for h in holders))
        for held in holders:
            if held.steps < _FIRST and found.comes_to(held):
                self.made[held.ref()] = _smallest(held)

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        if closure:
            return
        self._order(optimizer, held)
        self._reach(optimizer, held)

    def _order(self, optimizer: Any, held: Held) -> None:
        if not held.ever_reached:
            self.early.add(optimizer)
        lost = (held.reached and not held.filled) or all(p._grad is None for p in held.params)
        lost = lost or self._was_written(optimizer, held)
        if not (lost and held.reached and _are_empty(held)):
            if held.reached:
                self.lost.pop(optimizer, None)
            return
        times = self.lost[optimizer] = self.lost.get(optimizer, 0) + 1
        if times < _SEVERAL:
            return
        from_start = optimizer in self.early
        kind = "step-before-backward" if from_start else "gradients-cleared-before-step"
        text = f"{held.name}.step() finds no gradients, though backward has made some"
        self.session.add(kind, here(), text)

    def _was_written(self, optimizer: Any, held: Held) -> bool:
        """Whether the program has written zeros into a gradient that backward has made."""
        grad, version, zero = self.made.pop(optimizer, (None, 0, True))
        now = _smallest(held)
        return not zero and now[0] is grad and now[1] != version and now[2]

    def _reach(self, optimizer: Any, held: Held) -> None:
        session = self.session
        apart = bool(self.walks) and not any(self.walks) and not held.reached
        ran = apart and any(
            c.recorded and not held.ids.isdisjoint([id(p) for p in c.root.parameters()])
             for c in session.calls
        )  # fmt: skip
        if not ran:
            self.apart.pop(optimizer, None)
            return
        times = self.apart[optimizer] = self.apart.get(optimizer, 0) + 1
        if times >= _SEVERAL and session.last is not None:
            text = (
                f"the loss has a gradient, and depends on none of the {len(held.params)} "
                f"parameters that {held.name} steps, though their model has run"
            )
            session.add("loss-without-model", session.last.place, text)

    def after_step(self, optimizer: Any, held: Held) -> None:
        self.walks = []


def _smallest(held: Held) -> tuple[Any, int, bool]:
    """The smallest gradient, how often it was written to, and whether it is zero."""
    grads = [p._grad for p in held.params if p._grad is not None]
    if not grads:
        return None, 0, True
    grad = min(grads, key=lambda g: g.numel())
    return grad, version_of(grad), is_zero(grad)


def _are_empty(held: Held) -> bool:
    return all(p._grad is None or is_zero(p._grad) for p in held.params)


class Holding:
    """Parameters with gradients that no optimizer holds, and held ones that never get one."""

    first, second, enough = 3, 6, 10  # steps at which it is looked

    def __init__(self, session: Session) -> None:
        self.session = session
        self.made: dict[int, int] = {}  # by id of a parameter: how many optimizers there were
        self.seen: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        self.ran: dict[int, int] = {}  # by id of a module: in how many of the walks looked at
        self.looked = 0
        self.outside: dict[int, tuple] = {}
        self.last_modules: list[Any] = []
        # Of an optimizer that may be gone at the end: it, and what was not used, with its names.
        self.unused: list[tuple[Held, set[int], dict[int, str]]] = []
        self.behind: set[int] = set()  # ids of modules that ran on what trained ones gave

    def registered(self, p: Any) -> None:
        self.made[id(p)] = len(self.session.held)

    def end(self) -> None:
        for held, seen, names in self.unused:
            self._tell_unused(held, [name for key, name in names.items() if key not in seen])

    def before_walk(self, found: Walked) -> None:
        holders = self.session.holders()
        for held in holders:
            seen = self.seen.setdefault(held.ref(), set())
            if found.elsewhere:
                seen |= held.ids
            else:
                seen |= held.ids & found.reached
        steps = {h.steps for h in holders}
        self.last_modules = []
        if self.second - 1 in steps:
            self.last_modules = [row[2] for row in self.session.inner]
        if not steps.isdisjoint((8, 9)):
            self.looked += 1
            for key in {id(row[2]) for row in self.session.inner}:
                self.ran[key] = self.ran.get(key, 0) + 1
            pending = found.walk.pending
            self.behind |= {
                id(row[2]) for row in self.session.inner
                if len(row) > 3 and any(_leads_to(n, pending) for n in row[3])
            }  # fmt: skip

    def after_step(self, optimizer: Any, held: Held) -> None:
        last = self.session.last
        self.session.inputs = any(h.steps in (8, 9) for h in self.session.holders())
        if last is None or last.elsewhere:
            return
        if held.steps == self.first:
            self.outside = {
                id(p): (weakref.ref(p), sample(p)) for p in self._outside(last)
            }  # fmt: skip
        elif held.steps == self.second and self.outside:
            self._tell_outside(held, last)
        elif held.steps == self.enough:
            self._without(held, self.seen.get(optimizer, set()))

    def _outside(self, last: Walked) -> list[Tensor]:
        """The parameters that the last backward came to, and no optimizer holds."""
        held = set().union(*[h.ids for h in self.session.holders()])
        leaves = [n.variable for n in last.leaves]
        return [
            p for p in leaves
            if isinstance(p, Parameter) and p.requires_grad and id(p) not in held
        ]  # fmt: skip

    def _tell_outside(self, held: Held, last: Walked) -> None:
        for each in gc.get_objects():  # those that were made before this began, and not used yet
            if isinstance(each, Optimizer):
                self.session.optimizer(each)
        still = [
            p for p in self._outside(last)
            if id(p) in self.outside and _is_same(self.outside[id(p)], p)
        ]  # fmt: skip
        roots = [
            r for r in self.session.names.roots
            if not held.ids.isdisjoint([id(p) for p in r.parameters()])
        ]  # fmt: skip
        known = {id(p) for r in roots for p in r.parameters()}
        inner = {id(p) for m in self.last_modules for p in m._parameters.values()} if roots else ()
        late = [p for p in still if id(p) in known and self.made.get(id(p), 0) > 0]
        lost = [p for p in still if id(p) not in known and id(p) in inner]
        rest = [p for p in still if id(p) in known and self.made.get(id(p), 0) == 0]
        self._outside_found(lost, "no module that is called holds them as its own (a plain list?)")
        self._outside_found(late, "they were made after the optimizer")
        if rest:
            names = listed(self.session.names.tensors(rest))
            self.session.add("gradients-unused", last.place, f"{names} get gradients for nothing")

    def _outside_found(self, params: list[Tensor], why: str) -> None:
        last = self.session.last
        if params and last is not None:
            names = listed(self.session.names.tensors(params))
            text = f"{names}: gradients come, no optimizer steps them; {why}"
            self.session.add("parameter-not-in-optimizer", last.place, text)

    def _without(self, held: Held, seen: set[int]) -> None:
        missing = self._missing(held, seen)
        if not (missing and seen and self.looked) or self.session.last is None:
            return
        cut, unused = self._ways(seen)
        names = self.session.names.tensors(missing)
        without = [n for p, n in zip(missing, names) if id(p) in cut - unused]
        if without:
            text = f"{listed(without)}: no gradient in {held.steps} steps, though the module runs"
            self.session.add("parameter-without-gradient", self.session.last.place, text)
        rest = {id(p): n for p, n in zip(missing, names) if id(p) in unused}
        self.unused.append((held, seen, rest))

    def _ways(self, seen: set[int]) -> tuple[set[int], set[int]]:
        """The parameters of modules from which nothing comes to the loss: those that it should
        come from, and those that do nothing. A module of which other parameters get gradients, or
        that runs on what such ones gave, is not cut off: it does not use these."""
        cut: set[int] = set()
        unused: set[int] = set()
        for m in {id(m): m for r in self.session.names.roots for m in r.modules()}.values():
            ids = {id(p) for p in m._parameters.values() if p is not None}
            if not ids:
                continue
            times = self.ran.get(id(m), 0)
            lives = not seen.isdisjoint([id(p) for p in m.parameters()])
            if not times or lives or id(m) in self.behind:
                unused |= ids
            elif times >= self.looked:
                cut |= ids
        return cut, unused

    def _tell_unused(self, held: Held, names: list[str]) -> None:
        if names:
            text = f"{listed(names)}: held by {held.name}"
            self.session.add("parameter-never-used", NOWHERE, text)

    def _missing(self, held: Held, seen: set[int]) -> list[Tensor]:
        return [
            p for p in held.params if p.requires_grad and id(p) not in seen and p._grad is None
        ]  # fmt: skip


def _leads_to(node: Any, pending: Any) -> bool:
    """Whether a node was made of what a backward walks."""
    seen, todo = {node}, [node]
    while todo:
        at = todo.pop()
        if at is None or at.__class__ is AccumulateGrad:
            continue
        if at in pending:
            return True
        for edge in at.edges:
            below = edge.node if edge.__class__ is Output else edge
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return False


def _is_same(kept: tuple, p: Tensor) -> bool:
    ref, before = kept
    now = sample(p)
    return ref() is p and before is not None and now is not None and (before == now).all()


CHECKS = (Zeroing, Order, Holding)
__all__ = ["CHECKS", "Holding", "Order", "Zeroing"]
