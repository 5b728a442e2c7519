"""Updates of optimizers on a device, many parameters in one launch, as eager steps have them.

Knows steps by their primitive, words and slots (``replay``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.device.array import DeviceArray


def run_together(steps: Sequence[Any], at: int, values: list) -> int:
    """Do the updates by one rule with the same numbers that stand at ``steps[at]`` and right behind
    it: how many; 0 where none does."""
    first, end = steps[at], at + 1
    if not _is_update(first, values):
        return 0
    while end < len(steps) and _alike(steps[end], first, values):
        end += 1
    sets = [[raw_of(values[i]) for i in s.given] for s in steps[at:end]]
    first.prim.together(first.params)(sets)
    return end - at


def _is_update(step: Any, values: list) -> bool:
    return step.prim.together is not None and values[step.given[0]].__class__ is DeviceArray


def _alike(step: Any, first: Any, values: list) -> bool:
    """Whether an update can go along with ``first``."""
    return (
        step.prim is first.prim and step.params == first.params and _is_update(step, values)
        and values[step.given[0]].place == values[first.given[0]].place
    )  # fmt: skip


def raw_of(a: object) -> Any:
    """What a platform takes for ``a``."""
    return a.data if a.__class__ is DeviceArray else a
