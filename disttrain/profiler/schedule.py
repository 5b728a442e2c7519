"""Which steps of a training are recorded. Pure: a number of a step in, what to do out."""

from __future__ import annotations

import enum
from collections.abc import Callable


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


RECORDING = frozenset((ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE))


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:  # fmt: skip
    """After ``skip_first`` steps, cycles of ``wait`` steps of nothing, ``warmup`` steps of warming
    up, ``active`` steps that are recorded, the last of which ends the record; ``repeat`` cycles (0:
    without end). ``skip_first_wait``: the first cycle does not wait."""
    given = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat,
             "skip_first": skip_first}  # fmt: skip
    if any(n < 0 for n in given.values()) or active == 0:
        told = ", ".join(
            f"{k}={n} (need {'> 0' if k == 'active' else '>= 0'})" for k, n in given.items()
        )
        raise AssertionError(f"Invalid profiler schedule arguments. Got {told}.")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat > 0 and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def always(step: int) -> ProfilerAction:
    """Record every step."""
    return ProfilerAction.RECORD
