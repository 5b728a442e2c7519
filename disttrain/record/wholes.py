"""Rows of runs on different numbers of ranks, or with different micro-batches, put together. Pure.

A value that ranks have parts of becomes the whole by the parts' places; what they have alike stands
for itself; of micro-batches, the statistics add up. Gradients of activations depend on how a loss
is divided, and are left out: those of parameters, and all that follows, are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import rows
from .alignment import Pair, gathered, in_order
from .comparison import sum_of, whole_of
from .reader import Row

_KINDS = frozenset({rows.STATE, rows.MODULE, rows.OPERATION, rows.GRAD, rows.PARAMETER,
                    rows.SETTINGS})  # fmt: skip
_BY_ELEMENTS = frozenset({rows.MODULE, rows.OPERATION})
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")


def met_wholes(
    first: Sequence[list[Row]], second: Sequence[list[Row]], counts: Callable[[Row], bool],
    shift: int,
) -> list[Pair]:  # fmt: skip
    """What belongs together of two runs, put together where it is in parts; what cannot be
    compared is left out."""

    def takes(row: Row) -> bool:
        inside = row.kind not in _BY_ELEMENTS or (row.phase == rows.FORWARD and row.module != "")
        return counts(row) and row.kind in _KINDS and inside and row.name not in WRAPPERS

    steps = {r.step for r in first[0]} & {r.step + shift for r in second[0]}
    ours = [gathered(r for r in s if r.step in steps and takes(r)) for s in first]
    theirs = [
        gathered((r for r in s if r.step + shift in steps and takes(r)), shift) for s in second
    ]
    met = []
    for key in ours[0]:
        if key in theirs[0]:
            met += _meet(key, [o.get(key, []) for o in ours], [t.get(key, []) for t in theirs])
    return in_order(met)


def _meet(key: tuple, ours: list[list[Row]], theirs: list[list[Row]]) -> list[Pair]:
    """The rows of one key: by ranks, each in order."""
    n, m = len(ours[0]), len(theirs[0])
    if not (n % m == 0 or m % n == 0):
        return []
    out = []
    for i in range(min(n, m)):
        a = _one(ours, i, n // min(n, m))
        b = _one(theirs, i, m // min(n, m))
        for x, y in _comparable(a, b):
            out.append(Pair((*key, i), [x], [y], ()))
    return out


def _one(ranks: list[list[Row]], i: int, each: int) -> list[list[Row]]:
    """What the ranks have of number ``i``, of which each has ``each`` parts."""
    return [rank[i * each : (i + 1) * each] for rank in ranks if len(rank) >= (i + 1) * each]


def _comparable(a: list[list[Row]], b: list[list[Row]]) -> list[tuple[Row, Row]]:
    """The pairs of rows that say the same of both: one of the whole, or one for each rank that has
    all of it."""
    x, y = _whole(a), _whole(b)
    if x is not None and y is not None and x.numel == y.numel:
        return [] if _is_sum(x, a, b) else [(x, y)]
    turned = [(p, q) for q, p in _alike(b, a)]
    alike = turned or _alike(a, b) if len(a) > len(b) else _alike(a, b) or turned
    if alike:
        return alike
    p, q = (sum_of([r for rank in side for r in rank]) for side in (a, b))
    if p.numel == q.numel and p.kind in _BY_ELEMENTS:
        return [(p._replace(hash=1), q._replace(hash=2))]  # by statistics alone
    return []


def _whole(side: list[list[Row]]) -> Row | None:
    parts = [row for rank in side for row in rank]
    return whole_of(parts) if parts else None


def _is_sum(whole: Row, a: list[list[Row]], b: list[list[Row]]) -> bool:
    """Whether these are numbers of which ranks have their own, as losses."""
    return whole.kind in _BY_ELEMENTS and any(r.numel == 1 for s in (*a, *b) for r in s)


def _alike(a: list[list[Row]], b: list[list[Row]]) -> list[tuple[Row, Row]]:
    """Where the first side has one row of it all: that with the row of each rank of the second
    that has it all, too."""
    if not a or len(a[0]) != 1:
        return []
    one = whole_of([r for rank in a for r in rank])
    if one is None:
        one = a[0][0]
        if any(len(rank) != 1 or rank[0].hash != one.hash for rank in a):
            return []  # what each rank has of its own
    found = [rank[0] for rank in b if len(rank) == 1]
    if len(found) != len(b) or any(r.numel != one.numel for r in found):
        return []
    if one.numel == 1 and one.kind in _BY_ELEMENTS:
        return []
    return [(one, _placed(one, r)) for r in found if not r.start]


def _placed(one: Row, row: Row) -> Row:
    """A row that was taken for a part, and is not one."""
    return row._replace(whole=0) if row.whole and not row.start else row


__all__ = ["met_wholes"]
