"""What a comparison has found, as text and as JSON. Pure."""

from __future__ import annotations

import os
from typing import Any

from . import rows
from .comparison import settings_text
from .diff import Difference, Result, label
from .reader import Row

_OF_TEXTS = (rows.SETTINGS, rows.RANDOM)


def lines(result: Result) -> list[str]:
    """For a terminal: the first line is the answer."""
    first = result.first
    steps = f"steps {result.steps[0]} to {result.steps[1]}"
    if first is None:
        if not result.compared:
            return ["nothing to compare: the recordings have no step in common"]
        return [f"no difference: {result.compared} rows of {steps} are equal ({result.mode})",
                *result.notes]  # fmt: skip
    out = [headline(first), *_sides(first, result.names)]
    equal, of = first.inputs
    if of:
        out.append(f"  inputs: {equal} of {of} are equal" + _blame(equal, of))
    if first.size and first.how == "value" and first.row.kind not in _OF_TEXTS:
        out.append(f"  differs in: {first.size}")
    out += [f"  note: {note}" for note in result.notes]
    out.append(f"before it, equal: {'; '.join(_short(r) for r in result.before) or 'nothing'}")
    if result.following:
        out.append(f"the {len(result.following)} that follow:")
        out += [f"  {how or 'equal':9} {_short(row)}" for how, row in result.following]
    out.append(f"{result.different} of {result.compared} rows differ ({steps}; {result.mode})")
    return out


def headline(found: Difference) -> str:
    """Step, rank, module, and what it is."""
    row = found.row
    where = f"step {found.step}, rank {found.rank}"
    where += f", module {row.module}" if row.module else ""
    what = {
        "value": "differ" if row.kind == rows.SETTINGS else "differs",
        "shape": "differs in its shape", "header": "is another call",
        "only in A": "is only in A", "only in B": "is only in B", "nan": "has the first nan",
    }[found.how]  # fmt: skip
    site = f", at {_site(row.site)}" if row.site else ""
    return f"{where}: {label(row)} {what} ({rows.PHASES[row.phase]}{site})"


def _blame(equal: int, of: int) -> str:
    if equal == of:
        return ": it is this operation that differs"
    return ": what it is given comes from outside of what is recorded, or differs within tolerance"


def _sides(found: Difference, names: tuple[str, str]) -> list[str]:
    out = []
    a, b = found.a, found.b
    told = ["" if row is None else facts(row) for row in (a, b)]
    if a is not None and b is not None and a.kind == rows.SETTINGS:
        told = [*settings_text(a, b)]
    for letter, name, row, text in (("A", names[0], a, told[0]), ("B", names[1], b, told[1])):
        if row is not None:
            out.append(f"  {letter} {name} (rank {row.rank}): {text}")
    return out


def facts(row: Row) -> str:
    """What is known of a value."""
    if row.kind in _OF_TEXTS or not row.shape:
        return row.about
    nans = f"  nan {row.nans}" if row.nans else ""
    whole = f"  a part of {row.whole} elements" if row.whole else ""
    return (
        f"{row.shape}  norm {row.norm:.9g}  min {row.low:.9g}  max {row.high:.9g}{nans}{whole}"
        + ("  (of all parts)" if row.sketch != row.sketch else f"  hash {row.hash:016x}")
    )


def _short(row: Row) -> str:
    module = f"{row.module} " if row.module else ""
    return f"{module}{label(row).rstrip(',')}"


def _site(site: str) -> str:
    path, _, rest = site.rpartition(":")
    here = os.path.relpath(path)
    return f"{path if here.startswith('..') else here}:{rest}"


def as_json(result: Result) -> dict[str, Any]:
    """The same as data."""
    return {
        "mode": result.mode, "a": result.names[0], "b": result.names[1],
        "steps": list(result.steps), "compared": result.compared,
        "different": result.different, "notes": result.notes,
        "answer": lines(result)[0],
        "first": None if result.first is None else result.first.as_dict(),
        "before": [row.as_dict() for row in result.before],
        "following": [{"how": how, **row.as_dict()} for how, row in result.following],
    }  # fmt: skip


__all__ = ["as_json", "facts", "headline", "lines"]
