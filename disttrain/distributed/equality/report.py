"""The text that says which value is the first that differs, and who has which. Pure.

Ranks with equal values are told together, the most first; they are what the others are held
against.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...comm.calls.header import name_ranks

NOTHING = "nothing more"
_ADVICE = (
    "Look for what sets them apart before these lines: a seed, a file, an order of a set, a "
    "rank in a condition."
)


def first_apart(rows: Mapping[int, Sequence[int]]) -> int | None:
    """The first place in which the hashes of ranks differ, or are missing."""
    for i in range(max(map(len, rows.values()))):
        if len({row[i] if i < len(row) else None for row in rows.values()}) > 1:
            return i
    return None


def groups_of(hashes: Mapping[int, int]) -> list[list[int]]:
    """Ranks with equal hashes together, the most first."""
    found: dict[int, list[int]] = {}
    for rank, value in sorted(hashes.items()):
        found.setdefault(value, []).append(rank)
    return sorted(found.values(), key=lambda ranks: (-len(ranks), ranks))


def text_of(
    where: str, call: str, index: int, count: int, name: str, part: str, told: Mapping[int, Any]
) -> str:
    """``told[rank]``: {"hash", "told", "site", "number", "stats"} of what differs first, which is
    ``part`` of value ``index`` of ``count``, called ``name``."""
    head = f"{where}: values that must be equal on all ranks differ, as {call} has found"
    what = f"value {index + 1} of {count} since the last call that was compared"
    named = f", {name!r}" if name else ""
    inside = f", in {part}" if part else ""
    lines = [f"{head}:", f"the first that differs is {what}{named}{inside}:"]
    groups = groups_of({rank: row["hash"] for rank, row in told.items()})
    first = told[groups[0][0]]
    for ranks in groups:
        row = told[ranks[0]]
        sites = dict.fromkeys(told[rank]["site"] for rank in ranks)
        places = " and ".join(list(sites)[:3])
        apart = "" if row is first else _apart(first, row)
        have = "has" if len(ranks) == 1 else "have"
        at = f" from {places}" if row["told"] != NOTHING else f" after {places}"
        lines.append(f"  {name_ranks(ranks)} {have} {row['told']}{at}{apart}")
    return "\n".join([*lines, _ADVICE])


def _apart(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """By how much a value differs from the most frequent one."""
    a, b = first["number"], other["number"]
    if a is not None and b is not None and math.isfinite(a - b) and a != b:
        return f"; it differs by {abs(a - b):.6g}"
    a, b = first["stats"], other["stats"]
    if not a or not b or a["shape"] != b["shape"]:
        return ""
    nans = f", {b['nans']} nans against {a['nans']}" if a["nans"] != b["nans"] else ""
    size = abs(a["sketch"] - b["sketch"])
    far = f"; it differs by about {size:.3g} (norm)" if math.isfinite(size) and size else ""
    return (
        f"{far}; its elements are {b['low']:.6g} to {b['high']:.6g} with norm "
        f"{math.sqrt(b['squares']):.6g}, against {a['low']:.6g} to {a['high']:.6g} with norm "
        f"{math.sqrt(a['squares']):.6g}{nans}"
    )
