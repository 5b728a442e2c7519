"""What was found: each once for its kind and place, shown at once and summed up at the end.

Ranks tell the store of their job what they found, so that what several find is shown by one alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ..context import Rank
from ..errors import DisttrainError
from .places import Place
from .table import ADVICE, KINDS, SEVERITIES


class SanitizeError(DisttrainError, RuntimeError):
    """A finding of a kind that ``raise_on`` names."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text())
        self.finding = finding


class Finding(NamedTuple):
    """One finding."""

    kind: str
    place: Place
    message: str  # what was seen
    step: int
    rank: int

    @property
    def severity(self) -> str:
        return KINDS[self.kind].severity

    def text(self) -> str:
        """All of it, as it is shown."""
        fix = KINDS[self.kind].fix
        return (
            f"{self.severity}: {self.kind}: {self.message}\n    at {self.place}, step {self.step}\n"
            f"    {fix}"
        )

    def row(self) -> dict[str, Any]:
        """As a line of a report."""
        return {
            "kind": self.kind, "severity": self.severity, "file": self.place.file,
            "line": self.place.line, "step": self.step, "rank": self.rank, "message": self.message,
            "fix": KINDS[self.kind].fix,
        }  # fmt: skip


class Findings:
    """Those of one rank. ``first_of_all(key)``: whether no other rank has told the same.

    ``listeners`` are told, too: a block of a program that is looked at as a whole.
    """

    def __init__(
        self, wanted: Collection[str], raise_on: Collection[str], me: Rank, report: str = "",
        quiet: bool = False,
    ) -> None:  # fmt: skip
        self.wanted, self.raise_on = set(wanted), frozenset(raise_on)
        self.me, self.report, self.quiet = me, report, quiet  # the rank's numbers may come later
        self.found: list[Finding] = []
        self.listeners: list[Findings] = [self]
        self.first_of_all: Callable[[str], bool] = lambda key: True
        self.silenced: list[frozenset[str]] = []  # by blocks of ``ignore``
        self._known: set[tuple[str, Place]] = set()
        self._said: set[tuple[str, Place]] = set()

    def is_open(self, kind: str) -> bool:
        """Whether a finding of that kind would be told now."""
        wanted = any(kind in each.wanted for each in self.listeners)
        return wanted and not any(kind in kinds for kinds in self.silenced)

    def add(self, kind: str, place: Place, text: str, step: int) -> bool:
        """Tell of it, if it is new; raises where that is wanted. Whether it was told."""
        if not self.is_open(kind):
            return False
        finding = Finding(kind, place, text, step, self.me.rank)
        told = [each for each in self.listeners if each._take(finding)]
        raises = any(kind in each.raise_on for each in told)
        if told and not raises:
            self._show(finding, told)
        if raises:
            raise SanitizeError(finding)
        return bool(told)

    def _take(self, finding: Finding) -> bool:
        """Whether it is wanted, and new."""
        key = finding.kind, finding.place
        if finding.kind not in self.wanted or key in self._known:
            return False
        self._known.add(key)
        self.found.append(finding)
        if self.report:
            with open(self.report, "a", encoding="utf-8") as file:
                file.write(json.dumps(finding.row()) + "\n")
        return True

    def _show(self, finding: Finding, told: list[Findings]) -> None:
        """Say it once, for all who listen."""
        key = finding.kind, finding.place
        loud = [each for each in told if not each.quiet]
        alone = self.first_of_all(f"{finding.kind} {finding.place}")
        if finding.severity != ADVICE and alone and loud and key not in self._said:
            self._said.add(key)
            loud[0].say(finding.text())

    def more(self, kind: str, place: Place, text: str) -> None:
        """Say more of what was found, where this rank has said that."""
        if (kind, place) in self._said:
            self.note(text)

    def note(self, text: str) -> None:
        """Say something of what is looked for."""
        for each in self.listeners:
            if not each.quiet:
                each.say(text)
                break

    def say(self, text: str) -> None:
        """A line of this rank on stderr."""
        if self.quiet:
            return
        who = f"sanitize[rank {self.me.rank}]" if self.me.world_size > 1 else "sanitize"
        print(f"{who}: {text}", file=sys.stderr, flush=True)

    def summary(self) -> str:
        """What was found, in a few lines; empty where that is nothing."""
        if not self.found:
            return ""
        told = [f for f in self.found if f.severity != ADVICE]
        lines = [f"{f.severity}: {f.kind} at {f.place}" for f in told]
        lines += [f.text() for f in self.found if f.severity == ADVICE]
        counted = ", ".join(
            f"{n} {name}{'s' * (n > 1 and name != ADVICE)}"
            for name in SEVERITIES
            if (n := sum(f.severity == name for f in self.found))
        )
        return "\n  ".join([f"{counted}:", *lines])


__all__ = ["Finding", "Findings", "SanitizeError"]
