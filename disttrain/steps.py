"""How many steps of training a rank has made, where others can see it (the black box).

Knows words of memory; no optimizer, and not who reads.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from . import context

SLOT = "steps"  # of a rank's context
_GIVEN_UP = 64  # steps of other optimizers after which one is taken not to step any more

_now = time.monotonic_ns


class Steps:
    """Counts in ``words``: the steps, when the last one ended (nanoseconds), the samples that they
    took in, at these indices."""

    def __init__(self, words: memoryview, step: int, ended: int, samples: int) -> None:
        self.words = words
        self._step, self._ended, self._samples = step, ended, samples
        self._counted: Callable[[], Any] | None = None  # gives the optimizer whose steps count
        self._others = 0  # steps of others since its last

    def add(self, samples: int = 0) -> None:
        """A step has ended."""
        words = self.words
        words[self._samples] += samples
        words[self._ended] = _now()
        words[self._step] += 1

    def told(self, samples: int) -> None:
        """The same, as the program itself says: from now on its optimizers are not counted."""
        self._counted = lambda: self
        self.add(samples)

    def of(self, optimizer: Any) -> None:
        """An optimizer has made a step. Those of the first one count, and of none inside or beside
        it, as long as it goes on."""
        counted = None if self._counted is None else self._counted()
        if counted is not optimizer:
            self._others += 1
            if counted is self or (counted is not None and self._others < _GIVEN_UP):
                return
            self._counted = weakref.ref(optimizer)
        self._others = 0
        self.add()


def stepped(optimizer: object) -> None:
    """An optimizer of the calling rank has made a step."""
    steps = context.thread.rank.slots.get(SLOT)
    if steps is not None:
        steps.of(optimizer)
