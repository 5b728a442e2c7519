"""Streams of numbers by Philox: a key and a counter that goes on, and the seeds of operations that
follow from one seed. How far a draw goes on, and how seeds follow, is TensorFlow's way."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..core.tensor import Tensor
from ..graphs import CURRENT
from ..ops import api as ops
from . import philox

Draw = Callable[[int, int, int, Any], Any]  # of a key, a counter, how many, numpy's type
_WORD = (1 << 64) - 1
Self = TypeVar("Self", bound="Stream")
_MAX, _DEFAULT = 2**31 - 1, 87654321


def signed(n: int) -> int:
    """64 bits as a signed number."""
    n &= _WORD
    return n - (1 << 64) if n >= 1 << 63 else n


def drawn(draw: Draw, key: int, counter: int, sizes: Sequence[int], kind: Any) -> Tensor:
    """A tensor of numbers."""
    found = draw(key, counter, math.prod(sizes), kind)
    return ops.tensor(found).reshape(list(sizes))


def drawn_of(
    seed: Sequence[int], draw: Draw, sizes: Sequence[int], kind: Any, trial: bool = False
) -> Tensor:
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


class Stream:
    """Numbers of a key and a counter that goes on: ``state`` is the counter's lower and upper half,
    and the key. A subclass may keep the state elsewhere (``get``, ``put``), and be given numbers
    of another kind (``numbers``)."""

    algorithm = 1  # Philox
    numbers: Callable[[Any], Any] = staticmethod(lambda value: value)

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        self.reset(copy_from.get() if copy_from is not None else state)

    @classmethod
    def from_state(cls: type[Self], state: Any, alg: Any = None) -> Self:
        """The stream that goes on from there."""
        return cls(state=state)

    @classmethod
    def from_seed(cls: type[Self], seed: int, alg: Any = None) -> Self:
        """The stream of a seed."""
        return cls(state=[int(seed), 0, 0])

    @classmethod
    def from_non_deterministic_state(cls: type[Self], alg: Any = None) -> Self:
        """A stream that nobody can tell before."""
        return cls(state=by_chance())

    @classmethod
    def from_key_counter(cls: type[Self], key: Any, counter: Any, alg: Any = None) -> Self:
        """The stream of a key, from a counter (its two halves) on."""
        return cls(state=[*cls.numbers(counter), int(cls.numbers(key))])

    @classmethod
    def default(cls: type[Self]) -> Self:
        """The stream of programs that have none of their own."""
        found = _DEFAULTS.get().get(cls)
        if found is None:
            found = cls.from_non_deterministic_state()
            found.as_default()
        return found

    def as_default(self) -> None:
        """Be the one that ``default`` gives."""
        _DEFAULTS.set({**_DEFAULTS.get(), type(self): self})

    def get(self) -> list[int]:
        """The state."""
        return self._kept

    def put(self, state: list[int]) -> None:
        """Go on from another state."""
        self._kept = state

    def reset(self, state: Any) -> None:
        """Go on from a state that a program gives."""
        self.put([int(n) for n in self.numbers(state)])

    def reset_from_seed(self, seed: int) -> None:
        """Go on as the stream of a seed."""
        self.reset([int(seed), 0, 0])

    def taken(self, count: int) -> tuple[int, int]:
        """Go on as if ``count`` numbers had been drawn; the key and the counter of these."""
        state, key, counter = advanced(self.get(), count)
        self.put(state)
        return key, counter

    def drawn(self, draw: Draw, sizes: Sequence[int], kind: Any, trial: bool = False) -> Tensor:
        """The next numbers; a ``trial`` gives others, and uses nothing up."""
        key, counter = (0, 0) if trial else self.taken(math.prod(sizes))
        return drawn(draw, key, counter, sizes, kind)

    def split(self, count: int = 1) -> list[Any]:
        """Streams of their own."""
        keys = self.drawn(philox.full, [count], np.int64).tolist()
        return [type(self)(state=[0, 0, key]) for key in keys]


_DEFAULTS: ContextVar[dict[type, Any]] = ContextVar("streams", default={})  # noqa: B039  (never changed)


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
        self, pair: tuple[int, int], place: Any, draw: Draw, sizes: Sequence[int], kind: Any,
        trial: bool = False,
    ) -> Tensor:  # fmt: skip
        """The next numbers of the operation ``place``, whose seeds are ``pair``; a ``trial`` uses
        nothing up."""
        begun, count = self.used.get(place, 0), math.prod(sizes)
        if not trial:
            self.used[place] = begun + count * 256
        return drawn(draw, pair[0] & _WORD, (pair[1] << 64) + begun, sizes, kind)

    def source(self, own: int | None, *place: Any) -> Callable[..., Tensor]:
        """The numbers of one operation, as a function ``(draw, sizes, kind, trial)``: in every
        graph that is traced they begin anew."""
        pair = self.pair(own)
        return partial(self.drawn, pair, (*place, pair, CURRENT.get() is not None and object()))


_SEEDS: ContextVar[Seeds | None] = ContextVar("seeds", default=None)


def seeds() -> Seeds:
    """The seeds in force."""
    found = _SEEDS.get()
    return begin(None) if found is None else found


def begin(seed: int | None) -> Seeds:
    """Let operations that follow draw from ``seed``."""
    found = Seeds(seed)
    _SEEDS.set(found)
    return found
