"""Curves from records, and long curves made short. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeGuard

MOST = 2000  # points of a curve that are drawn at first
_ABOUT = ("kind", "step", "epoch")
_SPELLED = ("nan", "inf", "-inf")  # JSON has no numbers for them; gaps show them

Curve = tuple[list[float], list[float | None]]  # steps, values


def curves(records: Iterable[dict[str, Any]]) -> dict[str, Curve]:
    """Curves by ``kind/name`` from records with a ``step`` and numbers. What was written after the
    step at which a run was resumed is left out: it was computed again."""
    found: dict[str, Curve] = {}
    for record in records:
        step, kind = record.get("step"), record.get("kind", "")
        if not is_number(step):
            continue
        if kind == "resume":
            for steps, values in found.values():
                keep = sum(1 for s in steps if s <= step)
                del steps[keep:], values[keep:]
            continue
        for name, value in record.items():
            if name in _ABOUT or not (is_number(value) or _is_spelled(value)):
                continue
            label = f"{kind}/{name}" if kind else name
            steps, values = found.setdefault(label, ([], []))
            steps.append(step)
            values.append(value if is_number(value) else None)
    return found


def is_counter(curve: Curve) -> bool:
    """Whether a curve merely counts: whole numbers that rise by the same step and, now and then,
    begin again (the place in an epoch, the samples so far). Its plot would be a saw or a ramp."""
    values: list[Any] = [v for v in curve[1] if isinstance(v, int)]
    if len(values) < 3 or len(values) != len(curve[1]):
        return False
    changes = Counter(b - a for a, b in itertools.pairwise(values))
    step, times = changes.most_common(1)[0]
    restarts = [b for a, b in itertools.pairwise(values) if b < a]
    regular = times + len(restarts) >= 0.8 * (len(values) - 1)
    return step > 0 and regular and all(b <= step for b in restarts)


def is_number(value: Any) -> TypeGuard[float]:
    """One that can be drawn: finite, and no more than a float can be."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def _is_spelled(value: object) -> bool:
    return isinstance(value, str) and value in _SPELLED


def thinned(curve: Curve, most: int = MOST) -> Curve:
    """At most about ``most`` points: of each stretch the least, the greatest and a gap if there is
    one, so that no spike and no nan is lost; the first and the last stay."""
    steps, values = curve
    if len(steps) <= most:
        return curve
    width = math.ceil(len(steps) / (most / 3))
    keep = {0, len(steps) - 1}
    for start in range(0, len(steps), width):
        stretch = range(start, min(start + width, len(steps)))
        known = [i for i in stretch if values[i] is not None]
        if known:
            keep.add(min(known, key=lambda i: values[i] or 0.0))
            keep.add(max(known, key=lambda i: values[i] or 0.0))
        gap = next((i for i in stretch if values[i] is None), None)
        if gap is not None:
            keep.add(gap)
    chosen = sorted(keep)
    return [steps[i] for i in chosen], [values[i] for i in chosen]
