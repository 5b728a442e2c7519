"""Which rows of two streams belong together. Pure.

Rows meet by step, kind, module, name and which one of those it is in the step; so streams of other
lengths, with operations more or less, and calls that end in another order still meet. Collectives
meet by their number in the step among those of a group.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from . import rows
from .reader import Row

BY_ABOUT = frozenset({rows.MODULE, rows.GRADIENT, rows.NODE, rows.OPERATION})
_CALLS = frozenset({rows.COLLECTIVE, rows.RECEIVED})


class Pair(NamedTuple):
    """Rows that belong together; one side may have none. ``place``: where it lies in the order."""

    key: tuple
    first: list[Row]
    second: list[Row]
    place: tuple


def key_of(row: Row, shift: int = 0) -> tuple:
    """What must agree for rows to meet."""
    step = row.step + shift
    if row.kind in _CALLS:
        group = row.call[0] if row.call else ""
        return step, row.kind, group, row.name
    about = row.about if row.kind in BY_ABOUT else ""
    return step, row.phase, row.kind, row.module, row.name, about


def gathered(stream: Iterable[Row], shift: int = 0) -> dict[tuple, list[Row]]:
    """The rows of a stream by what they meet by, in order."""
    found: dict[tuple, list[Row]] = defaultdict(list)
    for row in stream:
        found[key_of(row, shift)].append(row)
    for key, same in found.items():
        if key[1] in _CALLS and len(key) == 4:
            same.sort(key=lambda row: row.call[1] if row.call else row.at)
    return found


def pairs(
    first: Sequence[Row], second: Sequence[Row], kinds: Callable[[Row], bool], shift: int = 0
) -> list[Pair]:
    """All rows of both in order, each with the one of the other stream, of the steps that both
    have. ``shift`` is added to the steps of ``second``."""
    if shift:
        first, second = from_data(first, shift), from_data(second, 0)
    ours, theirs = {r.step for r in first}, {r.step + shift for r in second}
    both = ours & theirs
    a = gathered(r for r in first if r.step in both and kinds(r))
    b = gathered((r for r in second if r.step + shift in both and kinds(r)), shift)
    met: list[tuple[tuple, Row | None, Row | None]] = []
    for key in {**a, **b}:
        mine, other = a.get(key, []), b.get(key, [])
        if key[2] == rows.STATE and not (mine and other):
            continue  # shown where a recording begins
        for i in range(max(len(mine), len(other))):
            met.append((
                (*key, i), mine[i] if i < len(mine) else None, other[i] if i < len(other) else None
            ))  # fmt: skip
    return in_order([
        Pair(key, [] if x is None else [x], [] if y is None else [y], ()) for key, x, y in met
    ])  # fmt: skip


def from_data(stream: Sequence[Row], step: int) -> Sequence[Row]:
    """A stream from the first data of a step on: what a resumed run does before is its own."""
    for i, row in enumerate(stream):
        if row.step > step or (row.step == step and row.kind == rows.DATA):
            return stream[i:]
    return []


def in_order(met: list[Pair]) -> list[Pair]:
    """Pairs in the order of the first stream; what only the second has follows what is before it
    there."""
    known = sorted((p.second[0].at, p.first[0].at) for p in met if p.first and p.second)
    places = [x for x, _ in known]
    highest, so_far = [], -1
    for _, at in known:
        so_far = max(so_far, at)
        highest.append(so_far)
    out = []
    for p in met:
        if p.first:
            place = (p.first[0].step, p.first[0].at, 0, 0)
        else:
            i = bisect.bisect_left(places, p.second[0].at)
            place = (p.key[0], highest[i - 1] if i else -1, 1, p.second[0].at)
        out.append(p._replace(place=place))
    return sorted(out, key=lambda p: p.place)


__all__ = ["BY_ABOUT", "Pair", "gathered", "in_order", "key_of", "pairs"]
