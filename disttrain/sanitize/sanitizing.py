"""``dt.sanitize()`` and ``dtrun --sanitize``: when a rank is looked at, and what comes of it."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import context, settings
from ..errors import ConfigError
from . import activations, data, gradients, graphs, modes, numbers, ranks, schedules
from .report import Finding, Findings, SanitizeError
from .session import SLOT, Session
from .table import KINDS, chosen
from .watching import STAND_INS

_CHECKS: tuple[tuple[Callable[[Session], Any], frozenset[str]], ...] = tuple(
    (check, frozenset(kinds.split()))
    for check, kinds in (
        (gradients.Zeroing, "gradients-never-zeroed"),
        (gradients.Order,
         "step-before-backward gradients-cleared-before-step loss-without-model"),
        (gradients.Holding,
         "parameter-not-in-optimizer parameter-without-gradient gradients-unused "
         "parameter-never-used"),
        (modes.Modes, "eval-mode-in-training train-mode-in-evaluation"),
        (modes.Dropping, "dropout-in-evaluation"),
        (numbers.Numbers, "non-finite-forward non-finite-backward"),
        (numbers.CompiledLoss, "non-finite-forward"),
        (activations.Dead, "dead-activations"),
        (schedules.Schedules,
         "scheduler-before-optimizer scheduler-too-often scheduler-too-seldom"),
        (schedules.Rates, "learning-rate-zero"),
        (schedules.Scaling, "clip-before-unscale"),
        (schedules.Decay, "weight-decay-on-norms"),
        (data.Orders, "missing-set-epoch"),
        (data.Labels, "label-leakage"),
        (ranks.Ranks, "ranks-read-same-data weights-differ buffers-differ"),
        (graphs.Growing, "growing-graph"),
        (graphs.Kept, "graph-kept-alive"),
        (graphs.Captures, "retrace-storm"),
        (graphs.Moves, "tensor-moved-in-loop"),
    )
)  # fmt: skip
_BEGUN = "sanitize.begun"  # the slot of whether the settings were followed


class sanitize:  # noqa: N801  (used like a function)
    """Look for silent bugs of training in what the calling thread does, from now on: to the end of
    the block where it is used as one (``with dt.sanitize():``), else to ``stop`` or the end of the
    program. Where that is looked at already (``dtrun --sanitize``), both are told what is found.

    Each finding is said once for its kind and line, on stderr, and summed up at the end; advice
    only there. ``raise_on``: kinds or severities ("error", "warning", "advice") that raise
    ``SanitizeError`` instead. ``only``, ``ignore``: kinds or severities that are looked for, or
    not. ``report``: a file that gets a line of JSON for each finding. ``quiet``: say nothing.

    What is computed is the same as without.
    """

    def __init__(
        self, *, raise_on: str | Iterable[str] = (), only: str | Iterable[str] | None = None,
        ignore: str | Iterable[str] = (), report: str = "", quiet: bool = False,
    ) -> None:  # fmt: skip
        wanted = frozenset(KINDS) if only is None else _kinds("only", only)
        wanted -= _kinds("ignore", ignore)
        raising = _kinds("raise_on", raise_on)
        self._rank = me = context.current()
        self._to = Findings(wanted, raising, me, report, quiet)
        checks = [check for check, kinds in _CHECKS if kinds & wanted]
        session = me.slots.get(SLOT)
        if session is None:
            session = me.slots[SLOT] = Session(self._to, checks)
            STAND_INS.join()
        elif session.is_here():
            session.share(self._to, checks)
        else:
            raise ConfigError(
                "sanitize: another thread of this rank is looked at already; stop that first"
            )
        self._session, self._open = session, True
        atexit.register(self.stop)

    @property
    def findings(self) -> list[Finding]:
        """What was found so far."""
        return list(self._to.found)

    @property
    def failed(self) -> list[Exception]:
        """Errors of checks themselves, which look no longer."""
        return list(self._session.failed)

    def stop(self) -> None:
        """Look no longer, and sum up what was found."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.stop)
        try:
            self._leave()
        finally:
            text = self._to.summary()
            if text:
                self._to.say(text)

    def _leave(self) -> None:
        listeners = self._session.findings.listeners
        if len(listeners) == 1:  # nobody else listens
            STAND_INS.leave()
            self._rank.slots.pop(SLOT, None)
            self._session.tell("end")
        listeners.remove(self._to)

    def __enter__(self) -> sanitize:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _kinds(where: str, names: str | Iterable[str]) -> frozenset[str]:
    return chosen(f"sanitize: {where}=", names) if names else frozenset()


@contextmanager
def ignore(*kinds: str) -> Iterator[None]:
    """``with dt.sanitize.ignore("dead-activations"):`` tells of none of these kinds in the block;
    without names, of none at all. Where nothing is sanitized it does nothing."""
    names = _kinds("ignore", kinds) if kinds else frozenset(KINDS)
    session = context.current().slots.get(SLOT)
    if session is None:
        yield
        return
    silenced = session.findings.silenced
    silenced.append(names)
    try:
        yield
    finally:
        silenced.remove(names)


def findings() -> list[Finding]:
    """What was found so far of the calling rank; none where it is not sanitized."""
    session = context.current().slots.get(SLOT)
    told = [] if session is None else [f for to in session.findings.listeners for f in to.found]
    return list(dict.fromkeys(told))


def begin() -> None:
    """Sanitize this rank from now on to its end, where settings say so (``dtrun --sanitize``)."""
    kinds, me = settings.SANITIZE.text(), context.current()
    if kinds in ("", "0") or _BEGUN in me.slots:
        return
    me.slots[_BEGUN] = True
    report = settings.SANITIZE_REPORT.text()
    sanitize(only=None if kinds == "1" else kinds, report=report)


__all__ = ["Finding", "SanitizeError", "begin", "findings", "ignore", "sanitize"]
