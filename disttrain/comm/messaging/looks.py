"""How often a reader looks for a packet before it sleeps: as it was worth it lately. Data to data.

To wake a thread that sleeps takes longer than a small call, so to look a little while pays where
what is awaited comes soon, from a process that runs on another processor. Where there is none for
that process, it does not run while this one looks; then looking is given up, and tried again from
time to time, each time for long enough that the system moves one of the two to an idle processor.
"""

from __future__ import annotations

LOOKS = 60  # one takes about 1.2 us
AT_MOST = 0.00015  # seconds for all of them; past that another thread or process runs instead
PATIENCE = 128  # what looking may have cost more than it gained before it is given up
_COST = 2  # of looking in vain, where finding something gains 1
FIRST, LAST = 512, 8192  # reads until it is tried again: doubled each time that it is given up


class Looks:
    """``most``: looks before a read sleeps; 0: none ever."""

    def __init__(self) -> None:
        self.most = 0
        self._luck = PATIENCE
        self._rest, self._next_rest = 0, FIRST

    def now(self) -> int:
        """How often the next read looks."""
        if self._rest:
            self._rest -= 1
            return 0
        return self.most

    def found(self) -> None:
        """Something came while it looked."""
        if self._luck < PATIENCE:
            self._luck += 1
            if self._luck == PATIENCE:
                self._next_rest = FIRST

    def in_vain(self) -> None:
        """Nothing came while it looked."""
        self._luck -= _COST
        if self._luck <= 0:
            self._luck = PATIENCE
            self._rest, self._next_rest = self._next_rest, min(LAST, 2 * self._next_rest)
