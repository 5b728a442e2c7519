"""A row of the table, as data: what is injected, the criterion, and what trials gave.

Pure: knows numbers and texts; how a fault is injected is in the row's own function.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MOST = 700  # characters of a complaint


@dataclass(frozen=True)
class Trial:
    """One trial. ``folder``: its own, empty; ``quick``: a shorter one, where that says less."""

    folder: Path
    number: int
    quick: bool = False


@dataclass
class Seen:
    """What one trial gave: ``values`` by name, and what was ``wrong``."""

    values: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: object, otherwise: str) -> None:
        """``otherwise`` is wrong, unless it holds."""
        if not holds:
            self.wrong.append(otherwise)


@dataclass(frozen=True)
class Row:
    """``limits``: the most that each value may be in the worst trial (a name that begins with
    "least" has the least); ``units``: of values that are no seconds. ``trials`` where one trial
    says more than one (a soak), ``why_not``: what this machine lacks for it."""

    name: str
    inject: str
    criterion: str
    anchor: str
    run: Callable[[Trial], Seen]
    limits: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    trials: int | None = None
    why_not: Callable[[], str] = str


@dataclass
class Result:
    """All trials of a row."""

    trials: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    missing: str = ""  # why there was none

    def add(self, seen: Seen) -> None:
        self.trials += 1
        for name, value in seen.values.items():
            self.values.setdefault(name, []).append(value)
        self.wrong += [f"trial {self.trials}: {text[:MOST]}" for text in seen.wrong]

    def over(self, row: Row) -> list[str]:
        """The limits that the worst trial has broken."""
        found = []
        for name, limit in row.limits.items():
            values = self.values.get(name, [])
            least = name.startswith("least")
            if not values:
                found.append(f"{name}: never seen")
            elif (min(values) < limit) if least else (max(values) > limit):
                worst = min(values) if least else max(values)
                found.append(f"{name}: {told(worst, row.units.get(name))}, "
                             f"not {told(limit, row.units.get(name))}")  # fmt: skip
        return found

    def passed(self, row: Row) -> bool:
        return self.trials > 0 and not self.wrong and not self.over(row)


def told(value: float, unit: str | None = None) -> str:
    """A number with its unit; seconds without one."""
    if unit is not None:
        return f"{value:g}{unit}"
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.0f} ms"


HEAD = "| # | injected | criterion (worst trial) | p50 / max | trials | holds | to beat |"


def table(rows: Mapping[str, Row], results: Mapping[str, Result]) -> str:
    """The rows that were run, in Markdown."""
    lines = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for name, row in rows.items():
        result = results.get(name)
        if result is None or not result.trials:
            continue
        measured = "; ".join(
            f"{what} {_spread(values, row.units.get(what))}"
            for what, values in result.values.items()
        )
        holds = "yes" if result.passed(row) else "**no**: " + "; ".join(_why(row, result))
        cells = [name, row.inject, row.criterion, measured, str(result.trials), holds, row.anchor]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def _spread(values: list[float], unit: str | None) -> str:
    middle, most = told(statistics.median(values), unit), told(max(values), unit)
    return middle if middle == most else f"{middle} / {most}"


def _why(row: Row, result: Result) -> list[str]:
    """In short: limits broken, and how many trials went wrong with the first complaint."""
    found = result.over(row)
    if result.wrong:
        trials = {text.split(":")[0] for text in result.wrong}
        first = result.wrong[0].split(": ", 1)[1].splitlines()[0][:120]
        found.append(f"{len(trials)} of {result.trials} trials: {first}")
    return found
