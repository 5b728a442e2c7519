"""Stages that go through elements one by one: functions of them, and choices among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ConfigError, ShapeError
from ...trace import warn
from .elements import copied, decode, encode, flatten, form, lift, lower
from .specs import INFINITE, UNKNOWN, TensorSpec, spec_of, trailing
from .stage import Pass, Stage, State, Through, call, packed, probe, raw_call, unpacked


class Mapped(Stage):
    """A function of each element, called where the elements are asked for."""

    def __init__(self, source: Stage, fn: Callable[..., Any]) -> None:
        self.inputs, self.fn = (source,), fn

    def begin(self) -> Pass:
        return _MappedPass(self.inputs[0].begin(), self.fn)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def spec(self) -> Any:
        return probe(lambda element: spec_of(call(self.fn, element)), self.inputs[0])


class _MappedPass(Through):
    def __init__(self, source: Pass, fn: Callable[..., Any]) -> None:
        super().__init__(source)
        self._fn = fn

    def next(self) -> Any:
        return call(self._fn, self.source.next())


class Filtered(Stage):
    """The elements of which a function says True."""

    def __init__(self, source: Stage, predicate: Callable[..., Any]) -> None:
        self.inputs, self._predicate = (source,), predicate

    def begin(self) -> Pass:
        return _FilteredPass(self.inputs[0].begin(), self._predicate)

    def cardinality(self) -> int:
        return UNKNOWN


class _FilteredPass(_MappedPass):
    def next(self) -> Any:
        while True:
            element = self.source.next()
            if yes(call(self._fn, element), "filter"):
                return element


def yes(found: Any, where: str) -> bool:
    """The answer of a predicate."""
    told = spec_of(found)
    if told == TensorSpec((), np.dtype(bool)):
        return bool(found)
    raise ConfigError(f"Pipeline.{where}: Invalid `predicate`. `predicate` must return one truth "
                      f"value, but it returned {told}")  # fmt: skip


class TakenWhile(Filtered):
    """The elements before the first of which a function says False."""

    def begin(self) -> Pass:
        return _TakenWhilePass(self.inputs[0].begin(), self._predicate)


class _TakenWhilePass(_MappedPass):
    numbers = ("ended",)
    ended = False

    def next(self) -> Any:
        if not self.ended:
            element = self.source.next()
            if yes(call(self._fn, element), "take_while"):
                return element
            self.ended = True
        raise StopIteration


class Unique(Stage):
    """Each element once; they are compared by their bytes."""

    def __init__(self, source: Stage) -> None:
        self.inputs = (source,)

    def begin(self) -> Pass:
        return _UniquePass(self.inputs[0].begin())

    def cardinality(self) -> int:
        return UNKNOWN


class _UniquePass(Through):
    def __init__(self, source: Pass) -> None:
        super().__init__(source)
        self._seen: set[bytes] = set()

    def next(self) -> Any:
        while True:
            element = self.source.next()
            key = encode(element)
            if key not in self._seen:
                self._seen.add(key)
                return element

    def state(self) -> State:
        return {**super().state(), "seen": sorted(self._seen)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._seen = set(state["seen"])


class Part(Stage):
    """Elements ``start``, ``start + step`` ... before ``stop`` (None: to the end)."""

    def __init__(self, source: Stage, start: int, stop: int | None, step: int = 1) -> None:
        self.inputs, self._start, self._stop, self._step = (source,), start, stop, step

    def begin(self) -> Pass:
        return _PartPass(self.inputs[0].begin(), self._start, self._stop, self._step)

    def cardinality(self) -> int:
        count = self.inputs[0].cardinality()
        if count == UNKNOWN or (count == INFINITE and self._stop is None):
            return count
        stop = count if self._stop is None else self._stop
        return len(range(self._start, min(stop, count) if count >= 0 else stop, self._step))


class _PartPass(Through):
    numbers = ("at",)

    def __init__(self, source: Pass, start: int, stop: int | None, step: int) -> None:
        super().__init__(source)
        self._next, self._stop, self._step = start, stop, step
        self.at = 0  # elements that were read

    def next(self) -> Any:
        while True:
            wanted = self._next
            if self.at > wanted:
                wanted += -(-(self.at - wanted) // self._step) * self._step
            if self._stop is not None and wanted >= self._stop:
                raise StopIteration
            element = self.source.next()
            self.at += 1
            if self.at - 1 == wanted:
                return element


class Enumerated(Stage):
    """Pairs of a number and the element."""

    def __init__(self, source: Stage, start: int) -> None:
        self.inputs, self._start = (source,), start

    def begin(self) -> Pass:
        return _EnumeratedPass(self.inputs[0].begin(), self._start)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def spec(self) -> Any:
        return (TensorSpec((), np.dtype(np.int64)), self.inputs[0].spec())


class _EnumeratedPass(Through):
    numbers = ("at",)

    def __init__(self, source: Pass, start: int) -> None:
        super().__init__(source)
        self.at = start

    def next(self) -> Any:
        element = self.source.next()
        self.at += 1
        return np.asarray(self.at - 1, np.int64), element


class Scanned(Stage):
    """``fn(state, element) -> (state, output)``: the outputs."""

    def __init__(self, source: Stage, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        self.inputs, self._initial, self._fn = (source,), lower(initial), fn

    def begin(self) -> Pass:
        return _ScannedPass(self.inputs[0].begin(), self._initial, self._fn)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def spec(self) -> Any:
        return probe(lambda x: spec_of(scan_step(self._fn, self._initial, x)[1]), self.inputs[0])


class _ScannedPass(Through):
    def __init__(self, source: Pass, initial: Any, fn: Callable[[Any, Any], Any]) -> None:
        super().__init__(source)
        self._carried, self._fn = initial, fn

    def next(self) -> Any:
        element = self.source.next()
        self._carried, out = scan_step(self._fn, self._carried, element)
        return out

    def state(self) -> State:
        return {**super().state(), "carried": encode(self._carried)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._carried = decode(state["carried"], Stage.nested)


def scan_step(fn: Callable[[Any, Any], Any], carried: Any, element: Any) -> tuple[Any, Any]:
    """The new state, of the old one's structure, and the output."""
    result = raw_call(fn, (lift(copied(carried)), lift(element)))
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ConfigError(
            f"Pipeline.scan: the function returned {type(result).__name__}; a pair of the new "
            "state and the output is needed"
        )
    return like(carried, lower(result[0]), "scan"), lower(result[1])


def like(carried: Any, new: Any, where: str) -> Any:
    """``new``, if it has the structure and types of ``carried``."""
    if form(carried) != form(new):
        raise ConfigError(
            f"Pipeline.{where}: the new state has the structure {form(new)}; that of the initial "
            f"state is {form(carried)}, and must stay"
        )
    return new


class Unbatched(Stage):
    """The rows of each element."""

    def __init__(self, source: Stage) -> None:
        self.inputs = (source,)

    def begin(self) -> Pass:
        return _UnbatchedPass(self.inputs[0].begin())

    def cardinality(self) -> int:
        count = self.inputs[0].cardinality()
        if count < 0:
            return count
        sizes = {s.shape[0] if s.shape else None for s in flatten(self.inputs[0].spec())[0]}
        size = sizes.pop() if len(sizes) == 1 else None
        return count * size if size else UNKNOWN

    def spec(self) -> Any:
        return trailing(self.inputs[0].spec())


class _UnbatchedPass(Through):
    numbers = ("at",)

    def __init__(self, source: Pass) -> None:
        super().__init__(source)
        self._batch: Any = None
        self.at = 0

    def next(self) -> Any:
        while True:
            if self._batch is None:
                self._batch, self.at = self.source.next(), 0
            leaves, build = flatten(self._batch)
            size = rows(leaves, "unbatch")
            if self.at < size:
                self.at += 1
                return build([row(x, self.at - 1) for x in leaves])
            self._batch = None

    def state(self) -> State:
        return {**super().state(), "batch": packed([] if self._batch is None else [self._batch])}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._batch = next(iter(unpacked(state["batch"])), None)


def rows(leaves: list, where: str) -> int:
    """The common first size of arrays."""
    sizes = {x.shape[0] if x.shape else None for x in leaves}
    if len(sizes) != 1 or None in sizes:
        raise ShapeError(
            f"Pipeline.{where}: an element with arrays of shapes "
            f"{[list(x.shape) for x in leaves]}; all need the same first size"
        )
    return int(sizes.pop() or 0)


def row(leaf: Any, i: int) -> Any:
    """One row of a leaf, in memory of its own."""
    if not isinstance(leaf, np.ndarray):
        return leaf[i].clone()
    if leaf.dtype == object and leaf.ndim == 1:
        out = np.empty((), object)
        out[()] = leaf[i]
        return out
    return np.array(leaf[i])


class Rejecting(Stage):
    """Gives elements, passing over those that raise an error, up to the end."""

    def __init__(self, source: Stage, log: bool) -> None:
        self.inputs, self._log = (source,), log

    def begin(self) -> Pass:
        return _RejectingPass(self.inputs[0].begin(), self._log)


class _RejectingPass(Through):
    def __init__(self, source: Pass, log: bool) -> None:
        super().__init__(source)
        self._log = log

    def next(self) -> Any:
        while True:
            try:
                return self.source.next()
            except StopIteration:
                raise
            except Exception as error:
                if self._log:
                    warn(f"Pipeline: an element is left out: {type(error).__name__}: {error}")


class Checked(Stage):
    """Says that there are ``count`` elements, and sees to it."""

    def __init__(self, source: Stage, count: int) -> None:
        self.inputs, self._count = (source,), count

    def begin(self) -> Pass:
        return _CheckedPass(self.inputs[0].begin(), self._count)

    def cardinality(self) -> int:
        return self._count


class _CheckedPass(Through):
    numbers = ("at",)

    def __init__(self, source: Pass, count: int) -> None:
        super().__init__(source)
        self._count, self.at = count, 0

    def next(self) -> Any:
        try:
            element = self.source.next()
        except StopIteration:
            if self._count in (UNKNOWN, self.at):
                raise
            raise self._wrong(f"{self.at} elements") from None
        self.at += 1
        if 0 <= self._count < self.at:
            raise self._wrong("more elements")
        return element

    def _wrong(self, found: str) -> ConfigError:
        told = "without an end" if self._count == INFINITE else f"{self._count}"
        return ConfigError(f"Pipeline.assert_cardinality: {found} given; {told} were said to come")
