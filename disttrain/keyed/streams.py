"""Streams of numbers by Philox: a key and a counter that goes on, and the seeds of operations that
follow from one seed. How far a draw goes on, and how seeds follow, is TensorFlow's way."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops import api as ops
from . import philox

Draw = Callable[[int, int, int, Any], Any]  # of a key, a counter, how many, numpy's type
_WORD = (1 << 64) - 1
_MAX, _DEFAULT = 2**31 - 1, 87654321


def signed(n: int) -> int:
    """64 bits as a signed number."""
    n &= _WORD
    return n - (1 << 64) if n >= 1 << 63 else n


def drawn(draw: Draw, key: int, counter: int, sizes: Sequence[int], kind: Any) -> Tensor:
    """A tensor of numbers."""
    found = draw(key, counter, math.prod(sizes), kind)
    return ops.tensor(found).reshape(list(sizes))


def drawn_of(draw: Draw, seed: Sequence[int], sizes: Sequence[int], kind: Any) -> Tensor:
    """The numbers that are a function of two seeds."""
    return drawn(draw, *philox.key_and_counter(seed), sizes, kind)


def advanced(state: Sequence[int], count: int) -> tuple[list[int], int, int]:
    """The state (the counter's lower and upper half, and the key) after ``count`` numbers, and the
    key and the counter of these."""
    low, high, key = (int(n) & _WORD for n in state)
    counter = low | high << 64
    after = counter + count * 256
    return [signed(after), signed(after >> 64), signed(key)], key, counter


def by_chance() -> list[int]:
    """A state that nobody can tell before."""
    return [random.SystemRandom().getrandbits(62) for _ in range(3)]


class Seeds:
    """A seed (None: by chance), and the seeds of operations that follow from it."""

    def __init__(self, seed: int | None) -> None:
        self.seed, self.stream = seed, random.Random(seed)
        self.used: dict[Any, int] = {}  # by operation: where its numbers go on

    def state(self) -> tuple:
        """Where it is."""
        return self.seed, self.stream.getstate()

    def put(self, state: tuple) -> None:
        """Go on from there."""
        self.seed = state[0]
        self.stream.setstate(state[1])

    def pair(self, own: int | None) -> tuple[int, int]:
        """The two seeds of an operation, of which ``own`` may be given."""
        if self.seed is not None:
            pair = self.seed, self.stream.randint(0, _MAX) if own is None else own
        elif own is not None:
            pair = _DEFAULT, own
        else:
            pair = self.stream.getrandbits(63), self.stream.getrandbits(63)
        return pair if any(pair) else (0, _MAX)

    def drawn(
        self, draw: Draw, pair: tuple[int, int], place: Any, sizes: Sequence[int], kind: Any,
        trial: bool = False,
    ) -> Tensor:  # fmt: skip
        """The next numbers of the operation ``place``, whose seeds are ``pair``; a ``trial`` uses
        nothing up."""
        begun, count = self.used.get(place, 0), math.prod(sizes)
        if not trial:
            self.used[place] = begun + count * 256
        return drawn(draw, pair[0] & _WORD, (pair[1] << 64) + begun, sizes, kind)
