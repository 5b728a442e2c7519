"""Learning rates, when schedulers step, loss scales, and what weight decay is for."""

from __future__ import annotations

import weakref
from typing import Any

from ..core import Tensor
from ..nn.modules import batchnorm, normalization
from .places import NOWHERE, here, listed
from .session import Held, Session, Walked, node_of

_NORMS = (batchnorm._Norm, normalization.LayerNorm, normalization.RMSNorm,
          normalization.GroupNorm)  # fmt: skip
_TIMES = 3  # in a row
_FALLEN, _FROM_START = 5, 50  # steps at a rate of zero
_SHORT = 30  # a period that may be one of epochs
_NOTHING = 1e-12  # of the largest rate


class _Steps:
    """Of one scheduler."""

    def __init__(self, scheduler: Any, held: Held) -> None:
        self.between = self.often = self.count = 0
        self.first = held.steps == 0
        self.early = 0
        self.name, self.total, self.held = type(scheduler).__name__, _total(scheduler), held


def _total(scheduler: Any) -> int:
    """The steps of a whole schedule; 0 where it has none."""
    inner, ends = getattr(scheduler, "_schedulers", ()), getattr(scheduler, "_milestones", ())
    if inner and ends:  # one after the other
        last = _total(inner[-1])
        return last and last + int(ends[-1])
    period = getattr(scheduler, "T_max", 0)
    if hasattr(scheduler, "T_mult") or (isinstance(period, int) and period < _SHORT):
        period = 0
    total = getattr(scheduler, "total_steps", None) or period
    return total if isinstance(total, int) else 0


class Schedules:
    """scheduler-before-optimizer, -too-often and -too-seldom."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.known: weakref.WeakKeyDictionary[Any, _Steps] = weakref.WeakKeyDictionary()
        self.whole: list[_Steps] = []  # of those that have an end: at that of the program both
        # scheduler and optimizer may be gone

    def scheduled(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is None:
            return
        held = self.session.optimizer(optimizer)
        known = self.known.get(scheduler)
        if known is None:
            known = self.known[scheduler] = _Steps(scheduler, held)
            if known.total:
                self.whole.append(known)
            known.first = held.steps == 0 and not optimizer.stepped and not held.skipping
        known.count += 1
        known.between += 1
        if held.skipping:
            known.between = 0
        if known.between == 2:
            known.often += 1
            if known.often == _TIMES and known.first is False:
                name = f"{type(scheduler).__name__} is stepped twice or more for each step of "
                self.session.add("scheduler-too-often", here(), name + held.name)
        elif known.between == 1 and known.first and known.count > 1:
            known.early += 1
            if known.early == _TIMES - 1:
                self._tell_early(scheduler, held)

    def _tell_early(self, scheduler: Any, held: Held) -> None:
        text = f"{type(scheduler).__name__} was stepped before the first step of {held.name}"
        self.session.add("scheduler-before-optimizer", here(), text)

    def after_step(self, optimizer: Any, held: Held) -> None:
        for scheduler, known in self.known.items() if self.known else ():
            if scheduler.optimizer is not optimizer:
                continue
            if known.first and known.count > 1 and held.steps == 1:
                known.first = False  # it was wound forward to where a run goes on
            if known.between < 2:
                known.often = 0
            known.between = 0

    def end(self) -> None:
        for known in self.whole:
            steps, total = known.held.steps, known.total
            if total < 10 or abs(steps - total) > total // 10 or 2 * known.count >= steps:
                continue
            text = (
                f"{known.name} of {total} steps was stepped {known.count} times in {steps} steps "
                f"of {known.held.name}"
            )
            self.session.add("scheduler-too-seldom", NOWHERE, text)


class Rates:
    """learning-rate-zero."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.known: weakref.WeakKeyDictionary[Any, list] = weakref.WeakKeyDictionary()

    def before_step(self, optimizer: Any, held: Held, closure: bool) -> None:
        rates = [_number(g.get("lr")) for g in getattr(optimizer, "param_groups", ())]
        known_rates = [r for r in rates if r is not None]
        if not rates or len(known_rates) < len(rates):
            return
        known = self.known.setdefault(optimizer, [0.0, 0, 0])  # largest, zeros in a row, changes
        highest = max(known_rates)
        known[0] = max(known[0], highest)
        if highest > known[0] * _NOTHING:
            known[1] = 0
            return
        known[1] += 1
        if known[1] == (_FALLEN if known[0] else _FROM_START):
            how = f"fallen from {known[0]:.3g} to {highest:.3g}" if known[0] else "0 from the start"
            text = f"the rates of {held.name} are {how} since {known[1]} steps"
            self.session.add("learning-rate-zero", here(), text)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value.detach()) if value.device.type == "cpu" else None
    return None if value is None else float(value)


class Scaling:
    """clip-before-unscale."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.roots: list[Any] = []  # nodes of scaled losses
        self.scale = 0.0
        self.large: set[int] = set()  # parameters whose gradients are multiplied

    def scaled(self, scaler: Any, out: Any) -> None:
        self.roots.append(node_of(out))
        self.scale = scaler._scale

    def before_walk(self, found: Walked) -> None:
        if any(n in found.walk.pending for n in self.roots):
            self.large |= found.reached
        self.roots = []

    def unscaled(self, scaler: Any, held: Held) -> None:
        self.large -= held.ids

    def cleared(self, ids: set[int]) -> None:
        self.large -= ids

    def after_step(self, optimizer: Any, held: Held) -> None:
        self.large -= held.ids

    def scaler_step(self, scaler: Any, optimizer: Any) -> None:
        self.large -= self.session.optimizer(optimizer).ids

    def clipped(self, params: list[Tensor], limit: Any) -> None:
        most = _number(limit)
        if self.scale <= 1.0 or most is None or most >= self.scale:
            return  # (a limit that was multiplied, too)
        if any(id(p) in self.large for p in params):
            text = f"clipped to {most:g} while the loss scale is {self.scale:g}"
            self.session.add("clip-before-unscale", here(), text)


class Decay:
    """weight-decay-on-norms."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def after_step(self, optimizer: Any, held: Held) -> None:
        if held.steps != 1:
            return
        groups = getattr(optimizer, "param_groups", ())
        decaying = [g for g in groups if _number(g.get("weight_decay")) or 0.0]
        decayed = {id(p) for g in decaying for p in g["params"]}
        if not decayed:
            return
        modules = [m for r in self.session.names.roots for m in r.modules()]
        found = {
            id(p): p for m in modules if isinstance(m, _NORMS)
            for p in m._parameters.values() if p is not None and id(p) in decayed
        }  # fmt: skip
        if found:
            names = listed(self.session.names.tensors(found.values()))
            self.session.add("weight-decay-on-norms", here(), f"{held.name}: {names}")


CHECKS = (Schedules, Rates, Scaling, Decay)
__all__ = ["CHECKS", "Decay", "Rates", "Scaling", "Schedules"]
