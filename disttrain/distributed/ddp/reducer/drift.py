"""Do the replicas still hold the same parameters? A little of them is compared in each step.

Before the last bucket of a step goes out, a slice of the parameters is hashed, the next slice in
each step; the hash travels behind the gradients. A difference is looked into once: all parameters
are hashed and compared. Knows parameters; the messages know the group.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....trace import warn
from .messages import Messages

SLICE_BYTES = 2048
PARTS = 1024  # all of a large model is compared in so many steps


class Drift:
    """Where the comparison has come to."""

    def __init__(self, params: Sequence[Tensor], messages: Messages, on: bool = True) -> None:
        """``on``: whether there is anybody to compare with."""
        self.params, self.messages = list(params), messages
        self.on = on
        self.report = ""  # what was found
        self.at = (0, 0)  # (parameter, first byte)
        self._share_out()

    def _share_out(self) -> None:
        """How much is compared in a step, and in how many ``slices`` at most everything is."""
        total = sum(p.array.nbytes for p in self.params)
        self.step = max(SLICE_BYTES, total // PARTS)
        self.slices = -(-total // self.step) + len(self.params)

    def watch(self, params: Sequence[Tensor]) -> None:
        """Compare these, too, from now on."""
        self.params += params
        self._share_out()

    def digest(self) -> int:
        """The hash of the next slice."""
        if not self.on or not self.params:
            return 0
        i, start = self.at
        raw = raw_bytes(self.params[i])
        end = start + self.step
        if end < raw.size:
            self.at = (i, end)
        else:
            self.at = ((i + 1) % len(self.params), 0)
        return zlib.crc32(raw[start:end], i)

    def compare(self, digests: Sequence[int], step: int) -> None:
        """``digests``: of the ranks that have input, alike on all ranks."""
        if self.on and digests and digests.count(digests[0]) != len(digests):
            self.on = False
            hashes = [zlib.crc32(raw_bytes(p)) for p in self.params]
            self.report = self.messages.drifted(hashes, step, self.slices)
            warn(self.report)


def raw_bytes(p: Tensor) -> Any:
    """The bytes of a parameter, one behind the other."""
    return np.ascontiguousarray(p.array).reshape(-1).view(np.uint8)
