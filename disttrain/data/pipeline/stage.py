"""Stages: a pipeline is a chain of them, each a plan that begins iterations. Knows no operation.

``Stage`` says what to do and keeps nothing of an iteration; ``Pass`` is one iteration of it, which
gives its position (``state``) and takes it (``restore``). A position is data: dicts, lists,
numbers, texts and bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.random import default_generator
from .elements import arguments, decode, encode, lower
from .specs import UNKNOWN, filled, merge

State = dict[str, Any]


class Stage:
    """A plan. ``inputs`` are the stages that it reads."""

    inputs: tuple[Stage, ...] = ()
    nested: Callable[[list], Any]  # a pipeline of such elements: set where that class is

    def begin(self) -> Pass:
        """A new iteration."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """How many elements it gives, or INFINITE or UNKNOWN."""
        return UNKNOWN

    def spec(self) -> Any:
        """What its elements look like."""
        return self.inputs[0].spec()


class Pass:
    """One iteration. ``next`` raises StopIteration at the end, and again when asked again; another
    error is that of one element: what follows can be asked for."""

    def next(self) -> Any:
        """The next element."""
        raise NotImplementedError

    def state(self) -> State:
        """The position."""
        return {}

    def restore(self, state: State) -> None:
        """Go there, right after the beginning."""

    def close(self) -> None:
        """End threads and files."""


class Through(Pass):
    """A pass that reads another one: ``numbers`` names what of it is its position."""

    numbers: tuple[str, ...] = ()

    def __init__(self, source: Pass) -> None:
        self.source = source

    def state(self) -> State:
        return {"source": self.source.state(), **{n: getattr(self, n) for n in self.numbers}}

    def restore(self, state: State) -> None:
        self.source.restore(state["source"])
        for n in self.numbers:
            setattr(self, n, state[n])

    def close(self) -> None:
        self.source.close()


def call(fn: Callable[..., Any], element: Any) -> Any:
    """What the program's function makes of an element."""
    return lower(raw_call(fn, arguments(element)))


def raw_call(fn: Callable[..., Any], args: tuple) -> Any:
    """What the program's function returns."""
    try:
        return fn(*args)
    except StopIteration as error:  # would end the pipeline without a word
        raise RuntimeError(f"Pipeline: the function {fn!r} raised StopIteration") from error


def probe(fn: Callable[[Any], Any], source: Stage) -> Any:
    """What ``fn`` tells, a spec, of elements of ``source``: of zeros and of ones, or else of its
    first element. Random numbers of the rank stay as they are."""
    spec = source.spec()
    before = default_generator.get_state()
    try:
        found = fn(filled(spec, 2, 0, Stage.nested))
        return merge(found, _of_others(fn, spec))
    except Exception:  # of the program's function, which zeros may not suit
        return fn(first(source))
    finally:
        default_generator.set_state(before)


def _of_others(fn: Callable[[Any], Any], spec: Any) -> Any:
    """The same of elements of another size and other numbers, where those suit."""
    try:
        return fn(filled(spec, 3, 1, Stage.nested))
    except Exception:
        return fn(filled(spec, 3, 0, Stage.nested))


def first(source: Stage) -> Any:
    """The first element of a new iteration."""
    begun = source.begin()
    try:
        return begun.next()
    except StopIteration:
        raise ValueError("a pipeline without elements") from None
    finally:
        begun.close()


def packed(elements: Any) -> list[bytes]:
    """Elements that wait in a buffer, as data."""
    return [encode(e) for e in elements]


def unpacked(data: list[bytes]) -> list:
    """The elements of ``packed``."""
    return [decode(d, Stage.nested) for d in data]


def number(value: Any) -> int:
    """A leaf as an integer."""
    return int(value)
