"""Differences that are meant, each with its reason and an example; anything else fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peers.compare import Difference


@dataclass(frozen=True)
class Deliberate:
    """A difference of this ``kind`` in a program in which ``text`` is found, where we do ``ours``
    and the peer ``theirs``; all three are patterns."""

    kind: str
    text: str
    ours: str
    theirs: str
    reason: str
    example: str

    def covers(self, difference: Difference, lines: tuple[str, ...]) -> bool:
        pairs = (
            (self.text, "\n".join(lines)),
            (self.ours, difference.ours),
            (self.theirs, difference.theirs),
        )
        return self.kind == difference.kind and all(re.search(p, s) for p, s in pairs)


TABLE = (
    Deliberate(
        "requires_grad",
        r"no_grad|set_grad_enabled\(False\)|inference_mode",
        r"False",
        r"True",
        "Without gradients, what is computed does not require them, as is documented; views do.",
        """
v0 = T.tensor([2.25, 1.0], requires_grad=True)
with T.no_grad(): v1 = v0.view(-1)
""",
    ),
    Deliberate(
        "value",
        r"(v\d+)\.register_hook(.|\n)*autograd\.grad\([^[]*\[[^]]*\b\1\b",
        r"",
        r"",
        "A gradient is what hooks made of it; the peer's only where nothing further is asked for.",
        """
v0 = T.tensor(0.25, requires_grad=True)
v1 = v0 * 3
v1.register_hook(lambda g: g * 2)
v2 = T.autograd.grad(v1, [v0, v1])
""",
    ),
    Deliberate(
        "requires_grad",
        r"create_graph",
        r"True",
        r"False",
        "Through which operations a constant gradient is computed is a matter of how rules are "
        "written; where the peer's does not require a gradient, ours may, of zeros.",
        """
v0 = T.tensor(0.5, requires_grad=True)
v1 = v0.prod()
v2 = T.autograd.grad(v1, [v0], create_graph=True)
""",
    ),
    Deliberate(
        "error",
        r"create_graph",
        r"was already run and its saved tensors were freed",
        r"raises nothing",
        "The same, of what the graph of a gradient saves: a second walk needs retain_graph.",
        """
v0 = T.tensor(1.5, requires_grad=True)
v1 = T.tensor(0.25, requires_grad=True)
v2 = T.autograd.grad(v0.mean(-1), [v0], v1, create_graph=True)[0].sum()
v2.backward(retain_graph=False)
v2.backward()
""",
    ),
)


def deliberate(difference: Difference, lines: tuple[str, ...]) -> Deliberate | None:
    """The entry of the table that a shrunk difference falls under."""
    return next((entry for entry in TABLE if entry.covers(difference, lines)), None)
