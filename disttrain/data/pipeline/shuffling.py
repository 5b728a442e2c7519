"""Shuffling through a buffer, and other random choices, from Philox 4x32-10.

An element is drawn from the ``buffer`` elements that were read last and not given yet. The numbers
are those of Philox (Salmon and others, 2011) by counter, with the first seed as the key and the
second one above the counter, a word at a time: the orders are those of TensorFlow's
``Dataset.shuffle`` with the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.device.codes.randomness import philox
from .specs import INFINITE, TensorSpec, spec_of
from .stage import Pass, Stage, State, Through, call, packed, probe, unpacked

_MASK = (1 << 64) - 1
_BLOCKS = 64  # counters that are worked out at a time


class Words:
    """The 32-bit words of one pair of seeds, in order; ``at`` is how many were taken."""

    def __init__(self, seeds: tuple[int, int], at: int = 0) -> None:
        self._seeds = (seeds[0] & _MASK, seeds[1] & _MASK)
        self.at = at
        self._kept: list[int] = []
        self._start = 0

    def take(self) -> int:
        """The next word."""
        at = self.at - self._start
        if not 0 <= at < len(self._kept):
            self._start = self.at - self.at % 4
            first = self._start // 4
            groups = np.arange(first, first + _BLOCKS, dtype=np.uint64)
            self._kept = philox(groups, *self._seeds).reshape(-1).tolist()
            at = self.at - self._start
        self.at += 1
        return self._kept[at]


class Shuffled(Stage):
    """Elements in random order. Each new pass takes two words of the pipeline's own stream as its
    seeds (``reshuffle``), or all have the same ones."""

    def __init__(self, source: Stage, buffer: int, seeds: tuple[int, int], reshuffle: bool) -> None:
        self.inputs, self._buffer, self._seeds = (source,), buffer, seeds
        self.stream = Words(seeds) if reshuffle else None

    def begin(self) -> Pass:
        seeds = self._seeds if self.stream is None else (self.stream.take(), self.stream.take())
        return _ShuffledPass(self.inputs[0].begin(), self._buffer, seeds, self.stream)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _ShuffledPass(Through):
    numbers = ("ended",)
    ended = False

    def __init__(
        self, source: Pass, size: int, seeds: tuple[int, int], stream: Words | None
    ) -> None:
        super().__init__(source)
        self._size, self._seeds, self._stream = size, seeds, stream
        self._words = Words(seeds)
        self._buffer: list = []  # a ring: where the oldest stands says ``_start``
        self._start = self._count = 0

    def next(self) -> Any:
        self._fill()
        if not self._count:
            raise StopIteration
        size = len(self._buffer)
        at = (self._start + self._words.take() % self._count) % size
        element, front = self._buffer[at], self._start % size
        self._buffer[at], self._buffer[front] = self._buffer[front], None
        self._start, self._count = self._start + 1, self._count - 1
        if self._start == self._size:
            self._start = 0
        return element

    def _fill(self) -> None:
        while not self.ended and self._count < self._size:
            try:
                element = self.source.next()
            except StopIteration:
                self.ended = True
                return
            if len(self._buffer) < self._size:
                self._buffer.append(element)  # (so a huge buffer takes what is in it)
            else:
                self._buffer[(self._start + self._count) % self._size] = element
            self._count += 1

    def state(self) -> State:
        size = max(len(self._buffer), 1)
        held = [self._buffer[(self._start + i) % size] for i in range(self._count)]
        return {
            **super().state(), "held": packed(held), "seeds": list(self._seeds),
            "drawn": self._words.at, "passes": None if self._stream is None else self._stream.at,
        }  # fmt: skip

    def restore(self, state: State) -> None:
        super().restore(state)
        self._buffer = unpacked(state["held"])
        self._start, self._count = 0, len(self._buffer)
        self._seeds = tuple(state["seeds"])
        self._words = Words(self._seeds, state["drawn"])
        if self._stream is not None:
            self._stream.at = state["passes"]


class Numbers(Stage):
    """Random words without end."""

    def __init__(self, seeds: tuple[int, int], again: bool) -> None:
        self._seeds = seeds
        self.stream = Words(seeds) if again else None

    def begin(self) -> Pass:
        seeds = self._seeds if self.stream is None else (self.stream.take(), self.stream.take())
        return _NumbersPass(self, seeds)

    def cardinality(self) -> int:
        return INFINITE

    def spec(self) -> Any:
        return TensorSpec((), np.dtype(np.int64))


class _NumbersPass(Pass):
    def __init__(self, stage: Any, seeds: tuple[int, int]) -> None:
        self._stage, self._seeds, self._words = stage, seeds, Words(seeds)

    def next(self) -> Any:
        return np.asarray(self._words.take(), np.int64)

    def state(self) -> State:
        stream = self._stage.stream
        return {"seeds": list(self._seeds), "drawn": self._words.at,
                "passes": None if stream is None else stream.at}  # fmt: skip

    def restore(self, state: State) -> None:
        self._seeds = tuple(state["seeds"])
        self._words = Words(self._seeds, state["drawn"])
        if self._stage.stream is not None:
            self._stage.stream.at = state["passes"]


class Indices(Stage):
    """Random numbers of pipelines without end, with probabilities ``weights``."""

    def __init__(self, weights: list[float], seeds: tuple[int, int], reshuffle: bool) -> None:
        self._ends = np.cumsum(np.asarray(weights, np.float64))
        self._last = int(np.flatnonzero(np.asarray(weights))[-1])
        self._seeds = seeds
        self.stream = Words(seeds) if reshuffle else None

    def begin(self) -> Pass:
        seeds = self._seeds if self.stream is None else (self.stream.take(), self.stream.take())
        return _IndicesPass(self, seeds)

    def index(self, uniform: float) -> int:
        """Which one a number of [0, 1) chooses."""
        at = int(np.searchsorted(self._ends, uniform * self._ends[-1], side="right"))
        return min(at, self._last)


class _IndicesPass(_NumbersPass):
    def next(self) -> Any:
        uniform = (self._words.take() * (1 << 21) + (self._words.take() >> 11)) / (1 << 53)
        return np.asarray(self._stage.index(uniform), np.int64)


class Resampled(Stage):
    """Elements with a class: each is kept with its class's probability of acceptance. With
    ``initial`` None, the share of each class is counted on the way."""

    def __init__(
        self, source: Stage, classes: Any, target: np.ndarray, initial: np.ndarray | None,
        seeds: tuple[int, int],
    ) -> None:  # fmt: skip
        self.inputs, self._classes, self._seeds = (source,), classes, seeds
        self._target, self._initial = target, initial

    def begin(self) -> Pass:
        source = self.inputs[0].begin()
        return _ResampledPass(source, self._classes, self._target, self._initial, self._seeds)

    def spec(self) -> Any:
        from_class = self._classes.spec(self.inputs[0])
        return (from_class, self.inputs[0].spec())


class _ResampledPass(Through):
    def __init__(self, source: Pass, classes: Any, target: Any, initial: Any, seeds: Any) -> None:
        super().__init__(source)
        self._classes, self._target, self._words = classes, target, Words(seeds)
        self._counts = np.ones(len(target), np.int64)
        self._initial = initial

    def next(self) -> Any:
        while True:
            element = self.source.next()
            kind = self._classes(element)
            at = int(np.asarray(kind))
            if self._initial is None:
                self._counts[at] += 1
            uniform = self._words.take() / (1 << 32)
            if uniform < self._acceptance()[at]:
                return kind, element

    def _acceptance(self) -> np.ndarray:
        share = self._counts / self._counts.sum() if self._initial is None else self._initial
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(share > 0, self._target / share, 0.0)
        most = ratio.max()
        return ratio / most if most > 0 else ratio

    def state(self) -> State:
        return {**super().state(), "drawn": self._words.at, "counts": self._counts.tolist()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._words.at = state["drawn"]
        self._counts = np.array(state["counts"], np.int64)


class Classes:
    """The class of an element, by a function of the program."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, element: Any) -> Any:
        return call(self._fn, element)

    def spec(self, source: Stage) -> Any:
        """What it looks like."""
        return probe(lambda element: spec_of(self(element)), source)
