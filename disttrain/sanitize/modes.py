"""Training and evaluation mode: which one a model is in when it is trained, and when it is not."""

from __future__ import annotations

import weakref
from typing import Any

from .. import context
from ..nn import Module
from ..nn.modules import batchnorm, dropout
from .places import here
from .session import Call, Held, Session, Walked

_IN_A_ROW = 8  # calls without a backward between them that are an evaluation
_DROPOUTS = dropout._Dropout


def _by_mode(root: Module) -> tuple[list[Module], list[Module]]:
    """The modules in ``root`` that do something else in evaluation: dropouts, and norms."""
    drops: list[Module] = []
    norms: list[Module] = []
    for m in root.modules():
        if isinstance(m, _DROPOUTS) and m.__dict__.get("p"):
            drops.append(m)
        elif isinstance(m, batchnorm._BatchNorm) and m.running_mean is not None:
            norms.append(m)
    return drops, norms


class Modes:
    """eval-mode-in-training and train-mode-in-evaluation."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.known: weakref.WeakKeyDictionary[Module, tuple] = weakref.WeakKeyDictionary()
        self.evaluated: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()
        self.row: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()
        self.passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()

    def modes(self, root: Module) -> tuple[list[Module], list[Module]]:
        found = self.known.get(root)
        if found is None:
            found = tuple([weakref.ref(m) for m in kinds] for kinds in _by_mode(root))
            self.known[root] = found
        drops, norms = ([m for ref in refs if (m := ref()) is not None] for refs in found)
        return drops, norms

    # -- training ------------------------------------------------------------------------------

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        calls = self.session.calls
        if not self.evaluated and all(call.training for call in calls):
            return
        by_root: dict[Module, list[Call]] = {}
        for call in calls:
            if call.walked:
                by_root.setdefault(call.root, []).append(call)
        for root, walked in by_root.items():
            if not self._is_evaluating(root, walked, held):
                self.evaluated.pop(root, None)
                continue
            times = self.evaluated[root] = self.evaluated.get(root, 0) + 1
            if times == 2:
                drops, norms = self.modes(root)
                what = [f"{len(x)} {n}" for x, n in ((drops, "dropouts"), (norms, "norms")) if x]
                text = f"{type(root).__name__} is trained in evaluation mode: {', '.join(what)}"
                self.session.add("eval-mode-in-training", walked[-1].place, text)

    def _is_evaluating(self, root: Module, calls: list[Call], held: Held) -> bool:
        if any(c.training for c in calls):
            return False
        drops, norms = self.modes(root)
        if not (drops or norms) or any(m.training for m in (*drops, *norms)):
            return False
        return not held.ids.isdisjoint([id(p) for p in root.parameters()])

    # -- evaluation ----------------------------------------------------------------------------

    def before_walk(self, found: Walked) -> None:
        if self.row:
            self.row.clear()
        source = None if self.session.loader is None else self.session.loader()
        if source is not None:
            self.passes.setdefault(source, _Pass()).trained = True

    def leave(self, call: Call, out: Any) -> None:
        root = call.root
        if call.recorded or not call.training or out is None:
            return
        drops, norms = self.modes(root)
        if not any(m.training for m in (*drops, *norms)) or not self._is_trained(root):
            return
        source = None if self.session.loader is None else self.session.loader()
        seen = None if source is None else self.passes.setdefault(source, _Pass())
        if seen is not None and seen.trained:
            return
        if seen is not None:
            seen.call = call
        self.row[root] = self.row.get(root, 0) + 1
        if self.row[root] == _IN_A_ROW:
            self._tell(call)

    def exhausted(self, source: Any) -> None:
        seen = None if source is None else self.passes.get(source)
        if seen is None or seen.trained or seen.call is None:
            return
        seen.count += 1
        if seen.count == 2:
            self._tell(seen.call)
        seen.call = None

    def _is_trained(self, root: Module) -> bool:
        ids = [id(p) for p in root.parameters()]
        return any(h.steps and not h.ids.isdisjoint(ids) for h in self.session.holders())

    def _tell(self, call: Call) -> None:
        root = call.root
        text = f"{type(root).__name__} is evaluated under no_grad in training mode"
        self.session.add("train-mode-in-evaluation", call.place, text)


class _Pass:
    """Of a loader: whether it is trained from; passes in which it was only evaluated."""

    def __init__(self) -> None:
        self.trained, self.count = False, 0
        self.call: Call | None = None


class Dropping:
    """dropout-in-evaluation: a function that drops where its module does not train."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def dropped(self) -> None:
        stack = self.session.stack
        if context.thread.grad_enabled or not stack:
            return
        module = stack[-1]
        if module.training or stack[0].training or isinstance(module, _DROPOUTS):
            return
        name = self.session.names.module(module)
        self.session.add("dropout-in-evaluation", here(), f"{name} is in evaluation mode")


CHECKS = (Modes, Dropping)
__all__ = ["CHECKS", "Dropping", "Modes"]
