"""What data-parallel training costs: times of each part of a step, bytes, who is waited for.

Times are taken at the beginning of forward, at the first gradient, at the first bucket, and before
and after the waiting at the end. How long a rank waited travels behind its next gradients: the one
that never waits is the one that the others wait for. Knows numbers and the rank's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from .... import context

_NEW = 0.1  # the share of the newest step in an average


class Stats:
    """The times of the last synchronised step, and their running averages, in seconds."""

    def __init__(self, size: int) -> None:
        self.now = context.current().waiter.now
        self.forward_at = self.backward_at = self.launch_at = self.wait_at = 0.0
        self.last = (0.0, 0.0, 0.0, 0.0)  # forward, backward, communication, waiting
        self.means: tuple[float, ...] = ()
        self.waits = [0.0] * size  # of each rank, as it says

    def end(self) -> None:
        """A synchronised backward has ended."""
        end = self.now()
        first = min(self.launch_at or self.wait_at, self.wait_at)
        self.last = (
            self.backward_at - self.forward_at, end - self.backward_at, end - first,
            end - self.wait_at,
        )  # fmt: skip
        if self.means:
            pairs = zip(self.means, self.last, strict=True)
            self.means = tuple([m + _NEW * (x - m) for m, x in pairs])
        else:
            self.means = self.last
        self.launch_at = 0.0

    def hear(self, waits: Sequence[float]) -> None:
        """How long each rank waited in the step before."""
        self.waits = [m + _NEW * (x - m) for m, x in zip(self.waits, waits, strict=True)]

    @property
    def overlap(self) -> float:
        """Seconds of communication during which backward went on, in the last step."""
        return self.last[2] - self.last[3]

    def straggler(self) -> tuple[int, float]:
        """The rank that waits least, and how much longer the others wait."""
        if len(self.waits) < 2:
            return 0, 0.0
        least = min(self.waits)
        rank = self.waits.index(least)
        rest = [w for r, w in enumerate(self.waits) if r != rank]
        return rank, sum(rest) / len(rest) - least
