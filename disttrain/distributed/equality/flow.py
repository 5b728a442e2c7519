"""What a rank does between two ``same_step``: the collectives that its thread calls on any group,
the modules whose forward runs, and the lines at which it passes ``same``.

Observed while somebody asks for it: a group's calls tell their black box when they begin, and what
stands in for that while a step is observed tells here, too. Knows calls and modules; no values.
"""

from __future__ import annotations

import threading
from typing import Any

from ... import context
from ...comm.calls.header import DTYPES, OPS, Site
from ...comm.job.blackbox import MARK
from ...nn import Module
from ...nn.global_hooks import register_module_forward_pre_hook
from ..groups.state import existing_groups
from .leaves import Leaf, hashed
from .sites import here

_MOST = 1 << 14  # events of a step that are kept one by one
_SLOT = "distributed.equality.flow"


class Step:
    """The events of one step, as leaves."""

    def __init__(self) -> None:
        self._events: list[Leaf] = []
        self._more, self._rest = 0, 0

    def add(self, what: str, site: Site | None = None) -> None:
        """``what`` happens at ``site``, or here."""
        site = site or here()
        value = hashed("event", f"{what} {site.line}".encode())
        if len(self._events) < _MOST:
            path = f"event {len(self._events) + 1}"
            self._events.append(Leaf(path, value, what, site=site.text))
        else:
            self._more += 1
            self._rest = hashed("events", f"{self._rest} {value}".encode())

    def leaves(self) -> list[Leaf]:
        """All that happened: an end that is not kept one by one is one leaf."""
        rest = [Leaf("the end", self._rest, f"{self._more} more events")] if self._more else []
        return [*self._events, *rest]


class _Observer:
    """Of one rank: tells every step that is open in the thread that does something."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], Step] = {}  # by thread and group
        self._hook: Any = None
        self._boxes: list[tuple[Any, Any]] = []

    def tell(self, what: str, site: Site | None = None) -> None:
        me = threading.get_ident()
        for (thread, _), step in tuple(self.open.items()):
            if thread == me:
                step.add(what, site)

    def start(self, key: tuple[int, int]) -> None:
        self.open[key] = Step()
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._module)
        watched = {id(calls) for calls, _ in self._boxes}
        for group in existing_groups():
            calls = group._calls
            if id(calls) not in watched:
                self._boxes.append((calls, calls.box))
                calls.box = _Told(calls.box, self)  # type: ignore[assignment]

    def stop(self, key: tuple[int, int]) -> None:
        self.open.pop(key, None)
        if self.open:
            return
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        while self._boxes:
            calls, box = self._boxes.pop()
            calls.box = box

    def _module(self, module: Module, args: tuple) -> None:
        self.tell(f"forward of a {type(module).__name__}")


class _Told:
    """A black box whose operations are told to an observer, too."""

    def __init__(self, box: Any, observer: _Observer) -> None:
        self._box, self._observer = box, observer
        self.end, self.fail = box.end, box.fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._box, name)

    def begin(self, seq: int, mark: bytes) -> int:
        numel, _, _, _, op, dtype, _, counts = MARK.unpack(mark)
        if counts:
            shape = f" of {numel} x {DTYPES[dtype].name}" if dtype < len(DTYPES) else ""
            self._observer.tell(f"{OPS[op]}{shape}")
        begun: int = self._box.begin(seq, mark)
        return begun


def _observer() -> _Observer:
    return context.current().slot(_SLOT, _Observer)


def begin(group: Any) -> None:
    """The calling thread begins a step for ``group``."""
    _observer().start((threading.get_ident(), id(group)))


def end(group: Any) -> None:
    """Nobody observes it any more."""
    _observer().stop((threading.get_ident(), id(group)))


def events(group: Any) -> list[Leaf] | None:
    """What was done in the step that is open; None where none is."""
    step = _observer().open.get((threading.get_ident(), id(group)))
    return None if step is None else step.leaves()


def passed(name: str, site: Site) -> None:
    """The thread passes a ``same`` at ``site``."""
    found: _Observer | None = context.current().slots.get(_SLOT)
    if found is not None and found.open:
        found.tell(f"same({name!r})" if name else "same", site)
