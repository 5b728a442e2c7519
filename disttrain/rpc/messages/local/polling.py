"""How often a reader looks for a packet before it sleeps: as it was worth it lately. Data to data.

To wake a thread that sleeps takes longer than a small call, so to look a little while pays where
what is awaited comes soon, from a process that runs on another processor. Where there is none for
that process, it does not run while this one looks; then looking is given up, and tried again from
time to time, each time for long enough that the system moves one of the two to an idle processor.
"""

from __future__ import annotations

NEAR, FAR = 60, 400  # looks; one takes about 1.2 us
AT_MOST = 0.0006  # seconds for all of them; past that another thread or process runs instead
GAIN = 120  # looks in vain that one which finds something is worth
CREDIT = 7680  # looks in vain before looking is given up; later on half as many
FIRST, LAST = 2048, 16384  # reads until it is tried again: doubled each time that it is given up
_STAYS = 16  # near ones in a row before it is no longer looked as far


class Polling:
    """``allowed``: whether a read looks before it sleeps at all."""

    def __init__(self) -> None:
        self.allowed = False
        self._credit = CREDIT
        self._rest, self._next_rest = 0, FIRST
        self._far = 0

    def now(self) -> int:
        """How often the next read looks."""
        if self._rest:
            self._rest -= 1
            return 0
        return (FAR if self._far else NEAR) if self.allowed else 0

    def found(self, looks: int) -> None:
        """Something came after so many looks."""
        self._far = _STAYS if looks > NEAR else max(0, self._far - 1)
        if self._credit < CREDIT:
            self._credit = min(CREDIT, self._credit + GAIN)
            if self._credit == CREDIT:
                self._next_rest = FIRST

    def in_vain(self, looks: int) -> None:
        """Nothing came in so many looks."""
        self._credit -= looks
        if self._credit <= 0:
            self._credit, self._far = CREDIT // 2, 0
            self._rest, self._next_rest = self._next_rest, min(LAST, 2 * self._next_rest)

    def missed(self) -> None:
        """What came then would have been found by looking further."""
        self._far = _STAYS
