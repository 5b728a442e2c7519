"""What a test wants to go wrong: ``kill 1@all_reduce:2`` and the like, at the points that
``dtrun --simulate`` knows, on simulated ranks and on real ones.

A real rank counts its calls where its groups make their headers, in its own process alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from disttrain.comm.calls.headers import Calls
from disttrain.comm.transports.sim import faults as points
from disttrain.comm.transports.sim.faults import DELAY, DROP, KILL, Calendar, Fault
from disttrain.context import sleep
from disttrain.errors import ConfigError

from ..options.simulation import Flags
from .marks import Ask

STOP, STRAGGLER = "stop", "straggler"
_SIMULATED = (KILL, DROP, DELAY, STRAGGLER)
_REAL = (KILL, STOP, DELAY)


def _parts(text: str, kinds: tuple[str, ...], ranks: str, others: str) -> tuple[str, str]:
    kind, point = text.split()
    if kind not in kinds:
        raise ConfigError(
            f"faults={text!r}: {', '.join(kinds)} can happen to {ranks} ranks ({others})"
        )
    return kind, point


def for_simulated(ask: Ask, flags: Flags) -> Flags:
    """The flags with the faults."""
    given: dict[str, tuple[str, ...]] = {}
    for text in ask.faults:
        kind, point = _parts(text, _SIMULATED, "simulated", "stop is for real ones")
        given[kind] = (*given.get(kind, ()), point)
    return replace(flags, **given)  # type: ignore[arg-type]


def for_real(ask: Ask) -> tuple[Fault, ...]:
    """The faults of real ranks; what is not to be had there is refused."""
    found = []
    for text in ask.faults:
        kind, point = _parts(text, _REAL, "real", "drop and straggler need simulate=True")
        fault = points.parse_fault(DELAY if kind == DELAY else KILL, point, ask.num_ranks)
        found.append(replace(fault, kind=kind))
    return tuple(found)


def strike(faults: tuple[Fault, ...], rank: int, tell: Callable[[str], object]) -> None:
    """From now on they happen in this process. ``tell``: called just before one does."""
    mine = tuple(fault for fault in faults if fault.rank in (None, rank))
    if not mine:
        return
    calendar, get = Calendar(mine), Calls.get

    def struck(calls: Calls, verb: str, *args: Any, **named: Any) -> Any:
        calendar.next(rank, verb)
        number = calendar.counts[rank, verb]
        for fault in mine:
            if fault.strikes(rank, verb, number):
                tell(f"{fault.kind} {rank}@{verb}:{number}")
                if fault.kind == DELAY:
                    sleep(fault.seconds)
                else:
                    os.kill(os.getpid(), signal.SIGSTOP if fault.kind == STOP else signal.SIGKILL)
        return get(calls, verb, *args, **named)

    Calls.get = struck  # type: ignore[method-assign, assignment]


def missed(faults: tuple[Fault, ...], happened: list[str]) -> list[str]:
    """The faults that have not struck. ``happened``: ``kill 1@all_reduce:2``, perhaps with ``--``
    before it and more behind it."""
    left = []
    for fault in faults:
        for text in happened:
            kind, point = text.removeprefix("--").split()[:2]
            rank, _, call = point.partition("@")
            verb, _, number = call.partition(":")
            if kind == fault.kind and fault.strikes(int(rank), verb, int(number)):
                break
        else:
            left.append(f"{fault.kind} {fault}")
    return left


def amiss(faults: tuple[Fault, ...], happened: list[str]) -> str:
    """What to say of faults that were never reached."""
    left = missed(faults, happened)
    return f"faults={left}: no rank has made that call, so nothing was tested" if left else ""


def doomed(happened: list[str]) -> set[int]:
    """The ranks that have died, or were stopped for good, as they were to."""
    found = set()
    for text in happened:
        kind, point = text.removeprefix("--").split()[:2]
        if kind in (KILL, STOP):
            found.add(int(point.partition("@")[0]))
    return found
