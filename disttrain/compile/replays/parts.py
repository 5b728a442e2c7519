"""Which steps of a program are recorded together, and which run one by one between them. Pure.

A step is recorded when all that it works on lies on one device, at addresses that stay. Updates of
optimizers take numbers of the host (a scheduled ``lr``, a count of steps), so they run by
themselves, as do steps that the host waits for or that use the host's arrays. Steps of the host
alone are done before the recorded ones that they stand between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

HOST, FIXED, DEVICE = "host", "fixed", "device"  # where a slot's value is; FIXED: never another


@dataclass(frozen=True)
class Facts:
    """What a plan must know of one step. ``alone``: it cannot be recorded."""

    given: tuple[int, ...]
    made: tuple[int, ...]
    writes: tuple[int, ...] = ()
    view: bool = False
    alone: bool = False
    pure: bool = True  # neither draws, nor checks, nor writes


@dataclass
class Part:
    """Steps by number. ``takes``: slots that earlier single steps made and recorded ones read."""

    recorded: bool
    steps: list[int] = field(default_factory=list)
    takes: tuple[int, ...] = ()


def divide(steps: Sequence[Facts], places: dict[int, str], roots: dict[int, int]) -> list[Part]:
    """The parts of a program in order. ``places``: of each slot; ``roots``: what a view is a view
    of."""
    loose: set[int] = set()  # device slots that are made anew by single steps
    kinds = [_kind(s, places, roots, loose) for s in steps]
    parts: list[Part] = []
    for i, kind in enumerate(kinds):
        if kind == HOST and parts and parts[-1].recorded and not _uses(steps[i], loose):
            if len(parts) < 2:
                parts.insert(0, Part(False))
            parts[-2].steps.append(i)
        elif parts and parts[-1].recorded == (kind == DEVICE):
            parts[-1].steps.append(i)
        else:
            parts.append(Part(kind == DEVICE, [i]))
    for part in parts:
        if part.recorded:
            given = {slot for i in part.steps for slot in steps[i].given}
            part.takes = tuple(sorted(given & loose))
    return parts


def _kind(s: Facts, places: dict[int, str], roots: dict[int, int], loose: set[int]) -> str:
    where = {places[slot] for slot in (*s.given, *s.made)}
    if DEVICE not in where:
        return HOST
    lost = any(roots.get(slot, slot) in loose for slot in (s.given if s.view else s.writes))
    if s.alone or HOST in where or lost:
        loose.update(slot for slot in s.made if places[slot] == DEVICE)
        return "single"
    return DEVICE


def _uses(s: Facts, loose: set[int]) -> bool:
    return any(slot in loose for slot in s.given)
