"""How many restarts a job has left, and how long each one waits: pure.

What fails at once is likely to fail at once again. So where processes have failed that made no
progress, again and again, the next ones wait longer and longer; where they made some, or ran for a
while, nothing waits: then it was something else that ended them.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG = 10.0  # seconds: who ran for so long did not fail at once
PROGRESS = 16  # operations of a group: who took part in so many did not, either
FIRST, CAP = 1.0, 60.0  # seconds: the second vain attempt waits first, then twice as long each time


@dataclass
class Restarts:
    """``most``: how many there may be. ``used``: how many there were. ``vain``: the attempts
    without progress, one after the other, that were the last."""

    most: int
    used: int = 0
    vain: int = 0

    def another(self, ran: float, operations: int) -> float | None:
        """Use one: after how many seconds it may begin; None where there is none left.

        What has failed ran for ``ran`` seconds and took part in ``operations``.
        """
        if self.used >= self.most:
            return None
        self.used += 1
        self.vain = 0 if ran >= LONG or operations >= PROGRESS else self.vain + 1
        return 0.0 if self.vain < 2 else min(CAP, FIRST * 2.0 ** min(self.vain - 2, 10))

    def told(self, wait: float) -> str:
        """For people: which restart it is, and why it waits."""
        text = f"restart {self.used} of {self.most}"
        if wait:
            text += f" in {wait:g} s, since the last {self.vain} attempts failed at once"
        return text
