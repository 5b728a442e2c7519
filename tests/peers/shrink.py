"""Take away what a difference does not need."""

from __future__ import annotations

import re
from collections.abc import Callable

from peers.compare import Difference, compare
from peers.program import Lines, Outcome, run

Runner = Callable[[Lines], tuple[Difference | None, Outcome]]


def on_both(ours, theirs) -> Runner:
    """Run lines on both libraries and compare."""

    def both(lines: Lines) -> tuple[Difference | None, Outcome]:
        outcome = run(lines, theirs)
        return compare(lines, run(lines, ours), outcome), outcome

    return both


def sense(difference: Difference) -> tuple[str, str]:
    """What must stay while a program shrinks: the kind, and the words of an error of ours."""
    words = re.sub(r"[\d.]+|v\d+", "#", difference.ours) if difference.kind == "error" else ""
    return difference.kind, words.split(":")[0]


def shrink(lines: Lines, difference: Difference, both: Runner) -> tuple[Lines, Difference]:
    """Remove lines, many at once and then one by one, while a difference of that sense remains."""
    wanted, size = sense(difference), max(1, len(lines) // 2)
    while size:
        removed = False
        for start in reversed(range(0, len(lines), size)):
            fewer = without(lines, start, start + size)
            found, outcome = both(fewer)
            lost = any(isinstance(e, NameError) for e in outcome.errors)
            if found is not None and not lost and sense(found) == wanted and fewer != lines:
                lines, difference, removed = fewer, found, True
        if not removed or size > 1:
            size //= 2
    return lines, difference


def without(lines: Lines, start: int, end: int) -> Lines:
    """The program without some lines and all that needs a name which only they gave."""
    kept, gone = [*lines[:start]], set().union(*map(given, lines[start:end]))
    for line in lines[end:]:
        if gone & used(line):
            gone |= given(line)
        else:
            kept.append(line)
    return tuple(kept)


def given(line: str) -> set[str]:
    """The names that a line assigns."""
    left, sign, _ = line.partition(" = ")
    return set(re.findall(r"\bv\d+\b", left)) if sign and re.fullmatch(r"[v\d, ]+", left) else set()


def used(line: str) -> set[str]:
    return set(re.findall(r"\bv\d+\b", line)) - given(line)
