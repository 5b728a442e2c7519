"""The clock of a job, which stands still while one of its ranks is in the debugger.

Three words of the job segment: how often they were changed (odd: they are being changed), since
when the clock stands (0: it goes), and for how long it has stood before, in nanoseconds of the
host's monotonic clock. The launcher alone writes them; ranks look when they wait. Deadlines that
are counted on this clock have their remaining time back afterwards. Knows no ranks and no terminal.
"""

from __future__ import annotations

import time
from typing import Any

PAUSE_AT = 128  # in the job segment
_CHANGES, _SINCE, _STOOD = range(3)
_BYTES = 24


class Pause:
    """The words in ``buffer``, the memory of a job segment."""

    def __init__(self, buffer: Any) -> None:
        self._words = memoryview(buffer)[PAUSE_AT : PAUSE_AT + _BYTES].cast("q")

    @property
    def on(self) -> bool:
        """Does the clock stand?"""
        return bool(self._words[_SINCE])

    def now(self) -> float:
        """Seconds on the job's clock."""
        words = self._words
        if not words[_CHANGES]:
            return time.monotonic()
        while True:
            changes, since, stood = words[_CHANGES], words[_SINCE], words[_STOOD]
            if not changes & 1 and words[_CHANGES] == changes:
                return ((since or time.monotonic_ns()) - stood) / 1e9
            time.sleep(0)

    def set(self, on: bool) -> float:
        """Let the clock stand, or go on; for how many seconds it has stood until now."""
        words, now = self._words, time.monotonic_ns()
        since = words[_SINCE]
        if on == bool(since):
            return 0.0
        words[_CHANGES] += 1
        if not on:
            words[_STOOD] += now - since
        words[_SINCE] = now if on else 0
        words[_CHANGES] += 1
        return 0.0 if on else (now - since) / 1e9

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
