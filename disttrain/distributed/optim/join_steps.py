"""Steps of a rank that has no more input: one that has some lends it gradients and settings.

A rank in a ``Join`` block whose input is over still owns parameters that it must step. Its own
gradients are old, and nobody steps its schedules. Knows the optimizer by its methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..collectives import objects
from ..join import JoinHook

_TAG = 0x5E70
_PLAIN = (bool, int, float, str, type(None))


class Shadow(JoinHook):
    """Takes part in the others' steps."""

    def __init__(self, zero: Any) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.shadow_step()


def exchange(
    group: objects.ProcessGroup,
    active: bool,
    owned: Sequence[Sequence[Tensor]],
    groups: list[dict[str, Any]],
) -> dict[Tensor, Tensor] | None:
    """Before a step inside a ``Join`` block, on every rank. On one without input: the gradients of
    the parameters it owns, and in ``groups`` the settings, of the last rank that has some; None on
    the others."""
    told = np.zeros(group.size, np.int64)
    told[group.rank] = active
    group.all_reduce(told)
    giver = int(told.nonzero()[0].max())
    if active:
        if giver == group.rank:
            for taker in np.flatnonzero(told == 0).tolist():
                lent = [_settings(groups), [p.grad for p in owned[taker]]]
                objects.send(group, lent, taker, _TAG)
        return None
    (settings, grads), _ = objects.recv(group, giver, _TAG)
    for mine, theirs in zip(groups, settings, strict=True):
        mine.update(theirs)
    pairs = zip(owned[group.rank], grads, strict=True)
    return {p: g for p, g in pairs if g is not None}


def _settings(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in g.items() if k != "params" and _is_plain(v)} for g in groups]


def _is_plain(value: float | tuple | None) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
