"""Effects: work that reaches beyond the tensors at hand (collectives, what leaves do with their
gradients), and that a capture repeats at the same place of every replay.

Who does such work says so here. Knows nothing of captures but that one may listen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..context import thread
from .tensor import Tensor


class Effect:
    """One piece of such work. Called now, and again by each replay, on tensors over the memory that
    those lie in which it was given at first."""

    def __call__(self, *tensors: Tensor) -> Any:
        raise NotImplementedError

    def settle(self, results: tuple) -> None:
        """A replay is through, and gives ``results``."""


def performed(
    name: str, effect: Effect, tensors: Sequence[Tensor] = (), writes: Sequence[int] = ()
) -> Any:
    """Call ``effect`` on ``tensors``; to those numbered in ``writes`` it writes. Its result."""
    stack = thread.stack
    recorder = getattr(stack[0], "effects", None) if len(stack) == 1 else None
    if recorder is None:
        return effect(*tensors)
    return recorder.perform(name, effect, tuple(tensors), tuple(writes))


__all__ = ["Effect", "performed"]
