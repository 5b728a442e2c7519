"""The number that a group gives for its rank and its size."""

from __future__ import annotations

__outward__ = ()  # a number


class Count(int):
    """A number that may be called, too: programs for PyTorch write ``group.rank()``."""

    __call__ = int.__int__

    def __reduce__(self) -> tuple:
        return int, (int(self),)  # saved with other values it is a plain number
