"""The lines of work beside the program's own, on which a root's units gather and reduce.

On a device gathers run ahead of the computation and reductions behind it, each on a stream of its
own; marks order them where they meet. What a line has made and the program has read is kept until
that line comes after the reading, so that its memory is given out again no sooner: the peak of
memory follows from the order of the program alone. On the host all of it is nothing. Knows memory;
no unit.
"""

from __future__ import annotations

from typing import Any

from ....backends.device.memory import Lane, Mark, Memory


class Line:
    """The lanes of one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.gather: Lane = memory.lane(priority=-1)
        self.reduce: Lane = memory.lane(priority=-1)
        self._read: list[tuple[Any, Mark]] = []

    def follow(self) -> None:
        """Gathers that begin from now on see what the program has written so far."""
        self.gather.follow()

    def keep(self, *arrays: object) -> None:
        """The program was given its last work on ``arrays``, which the gathering line made."""
        if not self.memory.on_host:
            self._read.append((arrays, self.memory.mark()))

    def release(self) -> None:
        """Let go of what is kept: what the gathering line is given from now on comes after."""
        for _, mark in self._read:
            self.gather.after(mark)
        self._read.clear()


class Lanes:
    """The lines of all memories that a root's units lie in."""

    def __init__(self) -> None:
        self._lines: dict[Memory, Line] = {}

    def of(self, memory: Memory) -> Line:
        line = self._lines.get(memory)
        if line is None:
            line = self._lines[memory] = Line(memory)
            line.follow()
        return line

    def follow(self) -> None:
        """See ``Line``."""
        for line in self._lines.values():
            line.follow()

    def release(self) -> None:
        """See ``Line``."""
        for line in self._lines.values():
            line.release()
