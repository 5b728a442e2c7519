"""Memory that a worker process lends to the process that it works for.

A *slab* is an anonymous file in memory (memfd) that both have mapped. The worker fills one with an
array and tells its number; the other side hands it out as an array without a copy, and when the
last array over it is gone, marks it free in a page that both see. So slabs are used again and
again, and nothing has a name that could be left behind: all is gone when both processes are.

    state page, one byte for a slab:  FREE -> (worker) BUSY -> (other side) FREE or DEAD

DEAD: unmapped over there and not wanted again; the worker unmaps it too and uses the number anew.
A number from ``NUM_SLABS`` on is a slab that is used once, made when all others are taken.
"""

from __future__ import annotations

import os

import numpy as np

from ..backends.memory import Memory, make_memory

FREE, BUSY, DEAD = 0, 1, 2
NUM_SLABS = 4096
_STEP = 1 << 16


class Shelf:
    """The worker's side: finds room for bytes."""

    def __init__(self) -> None:
        self.page_fd = make_memory("disttrain-data-states", NUM_SLABS)
        self.states = Memory(self.page_fd, NUM_SLABS).array()
        self.slabs: list[np.ndarray | None] = []
        self.extra = 0

    def place(self, num_bytes: int) -> tuple[int, np.ndarray, int]:
        """Room for ``num_bytes``: the slab's number, its memory, and the descriptor to send when
        the slab is new (else -1)."""
        states = self.states[: len(self.slabs)]
        for dead in np.flatnonzero(states == DEAD).tolist():
            self.slabs[dead], states[dead] = None, FREE
        free = np.flatnonzero(states == FREE).tolist()
        there = [(n, memory) for n in free if (memory := self.slabs[n]) is not None]
        fitting = [pair for pair in there if pair[1].size >= num_bytes]
        if fitting:
            number, memory = min(fitting, key=lambda pair: pair[1].size)
            states[number] = BUSY
            return number, memory, -1
        return self._new(num_bytes, free)

    def take_back(self, numbers: list[int]) -> None:
        """Free slabs that were filled and never told of."""
        for number in numbers:
            if number < NUM_SLABS:
                self.states[number] = FREE

    def _new(self, num_bytes: int, free: list[int]) -> tuple[int, np.ndarray, int]:
        """A new slab, under the number of one that is free and too small if there is one."""
        size = -(-num_bytes // _STEP) * _STEP
        fd = make_memory("disttrain-data", size)
        memory = Memory(fd, size).array()
        if free:
            number = free[0]
        elif len(self.slabs) < NUM_SLABS:
            number = len(self.slabs)
            self.slabs.append(None)
        else:
            self.extra += 1
            return NUM_SLABS + self.extra, memory, fd
        self.slabs[number] = memory
        self.states[number] = BUSY
        return number, memory, fd


class _Lease:
    """What arrays over a slab hold on to. Its end gives the slab back."""

    def __init__(self, home: Borrowed, number: int, memory: np.ndarray) -> None:
        self.home, self.number, self.memory, self.pid = home, number, memory, os.getpid()
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if os.getpid() == self.pid:  # a forked child has a copy of this object, but no say
            self.home.give_back(self.number)


class Borrowed:
    """The other side: the slabs of one worker, as arrays. ``keep`` says how many free slabs may
    wait for their next use."""

    def __init__(self, page_fd: int) -> None:
        self.states = Memory(page_fd, NUM_SLABS).array()
        self.slabs: dict[int, np.ndarray] = {}
        self.out: set[int] = set()  # slabs that arrays exist over
        self.seen_by_fork: set[int] = set()
        self.keep = 4

    def add(self, number: int, fd: int, size: int) -> None:
        """Map a new slab."""
        self.slabs[number] = Memory(fd, size).array()

    def array(self, number: int) -> np.ndarray:
        """The bytes of a slab that the worker has filled. It is lent until the array, and
        everything made from it, is gone."""
        self.out.add(number)
        return np.asarray(_Lease(self, number, self.slabs[number]))

    def give_back(self, number: int) -> None:
        """Nothing over there uses the slab any more."""
        self.out.discard(number)
        idle = len(self.slabs) - len(self.out)
        if number >= NUM_SLABS:
            self.slabs.pop(number, None)
        elif number in self.seen_by_fork or idle > self.keep:
            self.seen_by_fork.discard(number)
            self.slabs.pop(number, None)
            self.states[number] = DEAD
        else:
            self.states[number] = FREE

    def close(self) -> None:
        """The worker is gone: keep only what arrays exist over, for as long as they do."""
        self.keep = 0
        for number in set(self.slabs) - self.out:
            del self.slabs[number]

    def before_fork(self) -> None:
        """A child that is forked now sees the arrays that exist: never write over them."""
        self.seen_by_fork |= self.out
