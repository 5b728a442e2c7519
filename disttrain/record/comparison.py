"""When rows count as equal: by their bits, or within a tolerance by what is known of them. Pure.

Of a value there is a hash and statistics, not the value: so a tolerance of n ulp compares the norm,
the least and the greatest element, and the sketch, by which two arrays are apart about as much as
the norm of their difference; in units of the last place of the greatest magnitude, and of the norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from . import rows
from .reader import Row

_MASK = (1 << 64) - 1
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
       "complex64": 2.0**-23, "complex128": 2.0**-52}  # fmt: skip
_EXACT = frozenset({rows.SETTINGS, rows.RANDOM, rows.DATA})


def why_not(
    a: Row, b: Row, ulp: float = 0.0, by_header: bool = False, wholes: bool = False
) -> str:  # fmt: skip
    """In which way two rows differ; nothing where they do not. ``by_header``: only what a call
    asks for counts, not what is given to it. ``wholes``: of values that were put together, whose
    shapes need not agree, and which are no more exact than single precision."""
    if not wholes and a.shape != b.shape:
        return "shape"
    if a.kind == rows.COLLECTIVE and _asked(a) != _asked(b):
        return "header"
    if by_header:
        return ""
    if a.kind == rows.STATE and a.phase == rows.FORWARD and not a.step:
        ulp = 0.0  # nothing was computed before
    return "" if a.hash == b.hash or (ulp and _close(a, b, ulp, wholes)) else "value"


def _asked(row: Row) -> str:
    return row.about.partition("call ")[0]


def _close(a: Row, b: Row, ulp: float, wholes: bool) -> bool:
    if a.kind in _EXACT or a.nans != b.nans or a.dtype != b.dtype:
        return False
    eps = EPS.get(a.dtype)
    if eps is None or not a.numel:
        return False
    room = ulp * max(eps, EPS["float32"] if wholes else 0.0)
    scale = max(abs(x) for r in (a, b) for x in (r.low, r.high))
    norm = abs(a.norm - b.norm) <= room * max(a.norm, b.norm)
    ends = abs(a.low - b.low) <= room * scale and abs(a.high - b.high) <= room * scale
    apart = abs(a.sketch - b.sketch) if math.isfinite(a.sketch - b.sketch) else 0.0
    return norm and (ends or scale == float("inf")) and apart <= room * max(a.norm, b.norm)


def settings_text(a: Row, b: Row) -> tuple[str, str]:
    """What differs of two lists of settings."""
    x, y = a.about.split(", "), b.about.split(", ")
    mine, other = [s for s in x if s not in y], [s for s in y if s not in x]
    return ", ".join(mine) or a.about, ", ".join(other) or b.about


def size_text(a: Row, b: Row) -> str:
    """How much two rows differ, as far as statistics tell."""
    told = []
    if a.nans != b.nans:
        told.append(f"{a.nans} and {b.nans} elements are nan")
    if a.norm != b.norm:
        most = max(a.norm, b.norm)
        relative = abs(a.norm - b.norm) / most if most else 0.0
        told.append(f"the norm by {abs(a.norm - b.norm):.3g} ({relative:.2g} of it)")
        if min(a.norm, b.norm) > 0 and (times := ratio(a, b)):
            told.append(f"one is {times} times the other")
    if (a.low, a.high) != (b.low, b.high):
        ends = max(abs(a.low - b.low), abs(a.high - b.high))
        told.append(f"the extremes by {ends:.3g}")
    if not told and a.numel:
        told.append("the norm and the extremes are equal")
    apart = abs(a.sketch - b.sketch)
    if a.numel and a.nans == b.nans and math.isfinite(apart) and a.norm:
        told.append(f"the difference has a norm of about {apart:.1g} ({apart / a.norm:.1g} of A's)")
    return "; ".join(told)


def ratio(a: Row, b: Row) -> int:
    """The whole number of 2 or more by which two norms differ; 0 where there is none."""
    low, high = sorted((a.norm, b.norm))
    times = round(high / low) if low and high / low < 1e6 else 0
    return times if times >= 2 and abs(high / low - times) < 1e-3 * times else 0


def whole_of(parts: Sequence[Row]) -> Row | None:
    """Rows of several ranks, or of several micro-batches, as one row of the whole; None where they
    cannot be put together. The same part from several ranks counts once."""
    first = parts[0]
    if not all(p.whole for p in parts):
        return first if len(parts) == 1 else None
    apart = [*{p.start: p for p in parts}.values()]
    if sum(p.numel for p in apart) != first.whole:
        return None
    return _sum(apart, sum(p.hash for p in apart) & _MASK)


def sum_of(parts: Sequence[Row]) -> Row:
    """The statistics of parts whose places are not known: it has no hash, and no sketch."""
    return _sum(parts, 0)._replace(sketch=math.nan)


def _sum(parts: Sequence[Row], hash: int) -> Row:
    return parts[0]._replace(
        hash=hash, low=min(p.low for p in parts), high=max(p.high for p in parts),
        squares=sum(p.squares for p in parts), nans=sum(p.nans for p in parts),
        sketch=sum(p.sketch for p in parts), start=0,
        numel=sum(p.numel for p in parts), whole=0,
    )  # fmt: skip


__all__ = ["EPS", "ratio", "settings_text", "size_text", "sum_of", "whole_of", "why_not"]
