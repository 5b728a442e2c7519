"""Stages of several pipelines: side by side, one after the other, in turn, or chosen among."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ConfigError
from .batching import stage_of
from .elements import arguments, children, form
from .specs import INFINITE, UNKNOWN, merge
from .stage import Pass, Stage, State, Through, packed, probe, raw_call, unpacked


class Zipped(Stage):
    """One element of each of a structure of stages; ends with the shortest."""

    def __init__(self, tree: Any) -> None:
        leaves: list[Stage] = []
        self._tree = tree
        _walk(tree, leaves.append)
        self.inputs = tuple(leaves)

    def begin(self) -> Pass:
        return _ZippedPass([s.begin() for s in self.inputs], self._tree)

    def cardinality(self) -> int:
        counts = [s.cardinality() for s in self.inputs]
        finite = [c for c in counts if c != INFINITE]
        if not finite:
            return INFINITE
        return UNKNOWN if UNKNOWN in finite else min(finite)

    def spec(self) -> Any:
        specs = iter([s.spec() for s in self.inputs])
        return _walk(self._tree, lambda _: next(specs))


def _walk(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    found = children(tree)
    if found is None:
        return leaf(tree)
    return found[1]([_walk(part, leaf) for part in found[0]])


class _ZippedPass(Pass):
    def __init__(self, passes: list[Pass], tree: Any) -> None:
        self._passes, self._tree = passes, tree

    def next(self) -> Any:
        values = iter([p.next() for p in self._passes])
        return _walk(self._tree, lambda _: next(values))

    def state(self) -> State:
        return {"passes": [p.state() for p in self._passes]}

    def restore(self, state: State) -> None:
        for p, inner in zip(self._passes, state["passes"], strict=True):
            p.restore(inner)

    def close(self) -> None:
        for p in self._passes:
            p.close()


class Concatenated(Stage):
    """One pipeline after the other."""

    def __init__(self, *stages: Stage) -> None:
        self.inputs = stages

    def begin(self) -> Pass:
        return _SequencePass(lambda i: self.inputs[i] if i < len(self.inputs) else None)

    def cardinality(self) -> int:
        counts = [s.cardinality() for s in self.inputs]
        if INFINITE in counts:
            return INFINITE
        return UNKNOWN if UNKNOWN in counts else sum(counts)

    def spec(self) -> Any:
        spec = self.inputs[0].spec()
        for other in self.inputs[1:]:
            more = other.spec()
            if form(spec) != form(more):
                raise ConfigError(
                    f"Pipeline.concatenate: elements of structure {form(spec)} and {form(more)}; "
                    "they must be equal"
                )
            spec = merge(spec, more)
        return spec


class _SequencePass(Pass):
    """Passes one after the other; ``stage(i)`` is the i-th, None: there are no more."""

    def __init__(self, stage: Callable[[int], Stage | None], empty_ends: bool = False) -> None:
        self._stage, self._empty_ends = stage, empty_ends
        self._at, self._any = 0, False
        self._now: Pass | None = None

    def next(self) -> Any:
        while True:
            if self._now is None:
                stage = self._stage(self._at)
                if stage is None:
                    raise StopIteration
                self._now, self._any = stage.begin(), False
            try:
                element = self._now.next()
            except StopIteration:
                if self._empty_ends and not self._any:
                    raise  # again and again nothing: it would never end
                self.close()
                self._at += 1
                continue
            self._any = True
            return element

    def state(self) -> State:
        inner = None if self._now is None else self._now.state()
        return {"at": self._at, "any": self._any, "now": inner}

    def restore(self, state: State) -> None:
        self._at, self._any = state["at"], state["any"]
        if state["now"] is not None:
            stage = self._stage(self._at)
            assert stage is not None
            self._now = stage.begin()
            self._now.restore(state["now"])

    def close(self) -> None:
        if self._now is not None:
            self._now.close()
            self._now = None


class Repeated(Stage):
    """A pipeline ``count`` times (-1: without end)."""

    def __init__(self, source: Stage, count: int) -> None:
        self.inputs, self._count = (source,), count

    def begin(self) -> Pass:
        source = self.inputs[0]
        again = lambda i: source if self._count < 0 or i < self._count else None  # noqa: E731
        return _SequencePass(again, empty_ends=True)

    def cardinality(self) -> int:
        count = self.inputs[0].cardinality()
        if self._count == 0 or count == 0:
            return 0
        if self._count < 0:
            return INFINITE
        return count if count < 0 else count * self._count


class Interleaved(Stage):
    """``cycle`` pipelines that a function makes of elements, in turn ``block`` elements of each.
    ``ahead`` (0: none) of their elements are made beside the program, by a thread for each."""

    def __init__(
        self,
        source: Stage,
        fn: Callable[..., Any],
        cycle: int,
        block: int,
        wrap: Callable[[Stage], Stage] | None = None,
        where: str = "interleave",
    ) -> None:
        self.inputs, self._fn, self._cycle, self._block = (source,), fn, cycle, block
        self._wrap, self._where = wrap, where

    def opened(self, element: Any) -> Stage:
        """The pipeline of an element."""
        stage = stage_of(raw_call(self._fn, arguments(element)), self._where)
        return stage if self._wrap is None else self._wrap(stage)

    def begin(self) -> Pass:
        source = self.inputs[0].begin()
        return _InterleavedPass(source, self.opened, self._cycle, self._block)

    def cardinality(self) -> int:
        return UNKNOWN

    def spec(self) -> Any:
        return probe(lambda element: self.opened(element).spec(), self.inputs[0])


class _InterleavedPass(Through):
    numbers = ("at", "given", "ended")

    def __init__(
        self, source: Pass, opened: Callable[[Any], Stage], cycle: int, block: int
    ) -> None:
        super().__init__(source)
        self._opened, self._block = opened, block
        self._slots: list[tuple[Any, Pass] | None] = [None] * cycle
        self.at = self.given = 0
        self.ended = False

    def next(self) -> Any:
        while not self.ended or any(self._slots):
            slot = self._slots[self.at]
            if slot is None:
                self._fill()
                continue
            try:
                element = slot[1].next()
            except StopIteration:
                slot[1].close()
                self._slots[self.at] = None
                self._advance()
                continue
            self.given += 1
            if self.given == self._block:
                self._advance()
            return element
        raise StopIteration

    def _fill(self) -> None:
        if self.ended:
            self._advance()
            return
        try:
            element = self.source.next()
        except StopIteration:
            self.ended = True
            return
        self._slots[self.at] = (element, self._opened(element).begin())

    def _advance(self) -> None:
        self.given = 0
        self.at = (self.at + 1) % len(self._slots)

    def state(self) -> State:
        slots = [None if s is None else [packed([s[0]]), s[1].state()] for s in self._slots]
        return {**super().state(), "slots": slots}

    def restore(self, state: State) -> None:
        super().restore(state)
        for i, told in enumerate(state["slots"]):
            if told is not None:
                (element,) = unpacked(told[0])
                inner = self._opened(element).begin()
                inner.restore(told[1])
                self._slots[i] = (element, inner)

    def close(self) -> None:
        for slot in self._slots:
            if slot is not None:
                slot[1].close()
        super().close()


class Chosen(Stage):
    """An element of the stage whose number the first input gives next. ``stop_on_empty``: the end
    of one ends all; else what has ended is passed over."""

    def __init__(self, choice: Stage, stages: list[Stage], stop_on_empty: bool) -> None:
        self.inputs, self._stop = (choice, *stages), stop_on_empty

    def begin(self) -> Pass:
        choice, *stages = [s.begin() for s in self.inputs]
        return _ChosenPass(choice, stages, self._stop)

    def cardinality(self) -> int:
        return chosen_cardinality([s.cardinality() for s in self.inputs[1:]], self._stop)

    def spec(self) -> Any:
        spec = self.inputs[1].spec()
        for other in self.inputs[2:]:
            spec = merge(spec, other.spec())
        return spec


def chosen_cardinality(counts: list[int], stop_on_empty: bool) -> int:
    """Of pipelines whose elements are chosen among."""
    if all(c == INFINITE for c in counts) or (not stop_on_empty and INFINITE in counts):
        return INFINITE
    if stop_on_empty or UNKNOWN in counts:
        return 0 if stop_on_empty and all(c == 0 for c in counts) else UNKNOWN
    return sum(counts)


class _ChosenPass(Through):
    numbers = ("ended",)

    def __init__(self, choice: Pass, passes: list[Pass], stop: bool) -> None:
        super().__init__(choice)
        self._passes, self._stop = passes, stop
        self.ended = [False] * len(passes)

    def next(self) -> Any:
        while not all(self.ended):
            which = int(np.asarray(self.source.next()))
            if not 0 <= which < len(self._passes):
                raise ConfigError(
                    f"Pipeline.choose_from_datasets: {which} chosen; there are "
                    f"{len(self._passes)} pipelines, from 0"
                )
            if self.ended[which]:
                if self._stop:
                    raise StopIteration
                continue
            try:
                return self._passes[which].next()
            except StopIteration:
                self.ended[which] = True
                if self._stop:
                    self.ended = [True] * len(self._passes)
        raise StopIteration

    def state(self) -> State:
        return {**super().state(), "passes": [p.state() for p in self._passes],
                "ended": list(self.ended)}  # fmt: skip

    def restore(self, state: State) -> None:
        super().restore(state)
        self.ended = list(state["ended"])
        for p, inner in zip(self._passes, state["passes"], strict=True):
            p.restore(inner)

    def close(self) -> None:
        for p in self._passes:
            p.close()
        super().close()
