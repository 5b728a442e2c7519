"""Differences that are meant, each with its reason and an example; anything else fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peers.compare import Difference


@dataclass(frozen=True)
class Deliberate:
    """A difference of this ``kind``, where ``text`` is in the line (of an error) or the program,
    and ``theirs`` in what the peer does; both are patterns."""

    kind: str
    text: str
    theirs: str
    reason: str
    example: str

    def covers(self, difference: Difference, lines: tuple[str, ...]) -> bool:
        place = difference.where if "error" in difference.kind else "\n".join(lines)
        return (
            self.kind == difference.kind
            and re.search(self.text, place) is not None
            and re.search(self.theirs, difference.theirs) is not None
        )


TABLE = (
    Deliberate(
        "value",
        r"register_hook",
        r"None",
        "The peer calls the hook of a part that no gradient reaches with None; we do not call it.",
        """
v0 = T.tensor([2.25, 1.0], requires_grad=True)
v1, v2 = (v0 * 1).chunk(2)
v1.register_hook(lambda g: log.append(g))
v2.backward()
""",
    ),
    Deliberate(
        "requires_grad",
        r"no_grad|set_grad_enabled\(False\)|inference_mode",
        r"True",
        "Without gradients, what is computed does not require them, as is documented; views do.",
        """
v0 = T.tensor([2.25, 1.0], requires_grad=True)
with T.no_grad(): v1 = v0.view(-1)
""",
    ),
)


def deliberate(difference: Difference, lines: tuple[str, ...]) -> Deliberate | None:
    """The entry of the table that a shrunk difference falls under."""
    return next((entry for entry in TABLE if entry.covers(difference, lines)), None)
