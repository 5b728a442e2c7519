"""Differences that are meant, each with its reason; anything else fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peers.compare import Difference


@dataclass(frozen=True)
class Deliberate:
    """A difference of this ``kind`` whose line or last statement matches ``text``."""

    kind: str
    text: str
    reason: str
    theirs: str = ""

    def covers(self, difference: Difference, lines: tuple[str, ...]) -> bool:
        place = difference.where if "error" in difference.kind else "\n".join(lines)
        return (
            self.kind == difference.kind
            and re.search(self.text, place) is not None
            and re.search(self.theirs, difference.theirs) is not None
        )


TABLE: tuple[Deliberate, ...] = ()


def deliberate(difference: Difference, lines: tuple[str, ...]) -> Deliberate | None:
    return next((entry for entry in TABLE if entry.covers(difference, lines)), None)
