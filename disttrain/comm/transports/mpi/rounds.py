"""Who tells whom that it has come: dissemination with up to ``RADIX`` - 1 messages a round.

In round j of radix k each rank tells what it knows to the k - 1 ranks ``k^j, 2 k^j ...`` after it
(Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988; Hoefler: n-way). What a
rank knows is whether the headers of all that it has heard of are the same as its own, which does
not change when it hears of one twice: so any number of ranks will do. Up to ``RADIX`` ranks
that is one round in which everybody tells everybody. Pure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

RADIX = 8


@dataclass(frozen=True)
class Round:
    """One round of one rank: whom it tells, and whom it hears."""

    to: tuple[int, ...]
    of: tuple[int, ...]


@functools.cache
def rounds(rank: int, size: int, radix: int = RADIX) -> tuple[Round, ...]:
    """The rounds of ``rank`` in a group of ``size``."""
    found, reach = [], 1
    while reach < size:
        steps = range(reach, min(size, reach * radix), reach)
        to = tuple((rank + step) % size for step in steps)
        of = tuple((rank - step) % size for step in steps)
        found.append(Round(to, of))
        reach *= radix
    return tuple(found)
