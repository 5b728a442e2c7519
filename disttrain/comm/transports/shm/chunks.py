"""A large all_reduce of arrays that lie outside of shared memory, through rings of chunks.

The array goes through shared memory chunk by chunk, in rounds. In each one a member copies into its
ring what others reduce of a chunk; reduces its own slice of the one before from all rings, into its
array and in place into the rings; says so; and copies out of its ring what others have reduced of
the one before that. It begins a round when all others have ended the one before: so nobody
overwrites what is still to be read, with three chunks to a ring. Rings are so short that they, and
what is read and written meanwhile, stay in a core's own cache: what goes to memory is the array,
read and written once. (Results that stay in the ring of who has made them, for others to fetch,
would be written once instead of size - 1 times. But memory that goes to and fro between two caches
in turns goes faster: 25 MB on 2 ranks take 4.2 ms this way, and 5.5 that way.)

Sums of plain floats take the same rounds in machine code (``NativeRounds``), which some members may
do while others do not. Knows arrays; ``steps.py`` reduces arrays that lie in different ways.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ....backends.llvm import reduction
from ....backends.llvm.reduction import LINE, NUM_SLOTS
from .process_memory import address_of

_CHUNK_BYTES = 256 << 10
_CHUNK_BYTES_OF_FEW, _CHUNK_BYTES_OF_MANY = 512 << 10, 1 << 20  # by Python, whose rounds cost more


def rings_bytes(size: int, dtype: np.dtype) -> int:
    """The bytes of the ring of each of ``size`` members, which must agree: for a type that may be
    summed in machine code they are fit for that."""
    chunk = _CHUNK_BYTES
    if size > 2 and (dtype.name not in reduction.KINDS or size > reduction.MOST):
        chunk = _CHUNK_BYTES_OF_FEW if size <= 4 else _CHUNK_BYTES_OF_MANY
    return NUM_SLOTS * chunk


def cut(count: int, size: int, member: int) -> tuple[int, int]:
    """Where the slice of one of ``size`` members begins and ends in a chunk of ``count``."""
    per = -(-count // (size * LINE)) * LINE
    return min(member * per, count), min((member + 1) * per, count)


class Rings:
    """The rings of all members, for arrays of one type, as views for each slot."""

    def __init__(self, rings: Sequence[np.ndarray], me: int) -> None:
        """``rings``: of each member, as elements."""
        self.rings, self.me, self.size = rings, me, len(rings)
        self.step = rings[0].size // NUM_SLOTS
        self._slots = [self._slot(k, self.step) for k in range(NUM_SLOTS)]
        self._tail: tuple[int, Any] = (0, None)  # for a last chunk of so many elements

    def _slot(self, k: int, count: int) -> tuple:
        """Of a chunk of ``count`` in slot ``k``: where its first and its last part are copied in
        and out, and where all members' pieces of the part between lie, which this one reduces."""
        at, own = k * self.step, self.rings[self.me]
        a, b = cut(count, self.size, self.me)
        pieces = [ring[at + a : at + b] for ring in self.rings]
        return own[at : at + a], own[at + b : at + count], pieces

    def slots(self, count: int) -> list[tuple]:
        """The slot of each chunk of an array of ``count``."""
        full, rest = divmod(count, self.step)
        found = (self._slots * (full // NUM_SLOTS + 1))[:full]
        if rest:
            key = rest * NUM_SLOTS + full % NUM_SLOTS
            if self._tail[0] != key:
                self._tail = key, self._slot(full % NUM_SLOTS, rest)
            found.append(self._tail[1])
        return found

    def parts(self, array: np.ndarray) -> tuple[list, list, list]:
        """The three parts of every chunk of ``array``: the first, the one between, the last."""
        full = array.size // self.step
        found: tuple[list, list, list] = ([], [], [])
        body, tail = array[: full * self.step], array[full * self.step :]
        for rows in (body.reshape(full, self.step), tail[None]):
            if rows.size:
                a, b = cut(rows.shape[1], self.size, self.me)
                for into, part in zip(found, (rows[:, :a], rows[:, a:b], rows[:, b:]), strict=True):
                    into.extend(part)
        return found


def reduce_in_rounds(
    rings: Rings, array: np.ndarray, reduce: Callable, publish: Callable[[int], None]
) -> Generator[int, None, None]:
    """Reduce ``array``. Yields ``n`` to go on when all members have ended ``n`` rounds; calls
    ``publish(n)`` when this one has."""
    slots, me = rings.slots(array.size), rings.me
    firsts, owns, lasts = rings.parts(array)
    total = len(slots)
    for c in range(total + 2):
        if c:
            yield c
        if c < total:
            first, last, _ = slots[c]
            if me:
                first[...] = firsts[c]
            if last.size:
                last[...] = lasts[c]
        if 0 < c <= total:
            own, pieces = owns[c - 1], [*slots[c - 1][2]]
            pieces[me] = own
            reduce(pieces, own)
            for piece in pieces:
                if piece is not own:
                    piece[...] = own
        publish(c + 1)
        if c > 1:
            first, last, _ = slots[c - 2]
            if me:
                firsts[c - 2][...] = first
            if last.size:
                lasts[c - 2][...] = last


class NativeRounds:
    """The rounds of one member for arrays of one type, in machine code."""

    def __init__(
        self,
        code: reduction.Rounds,
        rings: Sequence[np.ndarray],
        me: int,
        flags: Sequence[int],
        sleepers: tuple[int, int],
        spins: int,
        yields: int,
    ) -> None:
        """``rings``: of each member. ``flags``: the addresses of the words that say how many rounds
        each member has ended; ``sleepers``: of those that say whether one sleeps (0: none does);
        ``spins``: how often to look at a flag; ``yields``: then, letting others go first."""
        words = np.zeros(reduction.TABLE + 2 * len(rings), np.uint64)
        others = [flag for i, flag in enumerate(flags) if i != me]
        table = [*(address_of(ring) for ring in rings), *others]
        words[reduction.TABLE : reduction.TABLE + len(table)] = table
        words[reduction.ME], words[reduction.FLAG], words[reduction.SPINS] = me, flags[me], spins
        words[reduction.YIELDS] = yields
        words[reduction.FOR_ALL], words[reduction.FOR_ANY] = sleepers
        words[reduction.STEP] = self._step = rings[0].nbytes // NUM_SLOTS
        self._words, self._at, self._code = words, address_of(words), code

    def __call__(
        self, array: np.ndarray, start: int, scale: float, ring: Callable[[int], None]
    ) -> Generator[int, None, None]:
        """As ``reduce_in_rounds``; the flags count from ``start``, and the sum is multiplied by
        ``scale``. ``ring(n)``: somebody may sleep until this member has ended ``n`` rounds."""
        words = self._words
        words[reduction.ARRAY], words[reduction.NBYTES] = address_of(array), array.nbytes
        words[reduction.TOTAL], words[reduction.START] = -(-array.nbytes // self._step), start
        words[reduction.ROUND] = words[reduction.STAGE] = 0
        while why := self._code(self._at, scale):
            rounds = int(words[reduction.ROUND])
            if why == reduction.RING:
                ring(rounds + 1)
            else:
                yield rounds
