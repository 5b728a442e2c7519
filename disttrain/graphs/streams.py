"""Iterators in traced functions: the next element is an operation, done at every run. One that is
an argument is one of a kind: all whose elements look alike share a trace."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from .graph import CURRENT


def drawn(step: Callable[[], Any], spec: Any, kind: str = "IteratorGetNext") -> Any:
    """What ``step()`` gives at every run of the function that is traced: nested values, of which
    ``spec`` says (in their structure) what they are."""
    graph = CURRENT.get()
    specs, rebuild = tree.flatten(spec)

    def call() -> list:
        return [graph.value_of(v) for v in tree.leaves(step())]

    examples = [s.example(2) for s in specs]
    twins = [_other(s, one) for s, one in zip(specs, examples, strict=True)]
    return rebuild(list(graph.record(kind, call, [], examples=examples, twins=twins)))


def stand_ins(spec: Any, graph: Any) -> Any:
    """What stands for an element in ``graph``, without an iterator."""

    def one(s: Any) -> Any:
        example = s.example(2)
        return graph.placeholder(example, _other(s, example), "element")

    return tree.map(one, spec)


def _other(spec: Any, one: Any) -> Any:
    """An example of other sizes, where ``spec`` leaves some open."""
    if spec.shape.is_fully_defined():
        return one
    return None if spec.shape.rank is None else spec.example(3)


class Stream:
    """What a traced function has in place of an iterator (``get_next``, else ``__next__``; and
    ``element_spec``) that is an argument: that of the call."""

    def __init__(self, element_spec: Any) -> None:
        self.element_spec = element_spec
        self._now: contextvars.ContextVar[Any] = contextvars.ContextVar("stream")

    @staticmethod
    def of(value: Any) -> Stream | None:
        """What stands for ``value``; None: it is no iterator that says what its elements are."""
        known = hasattr(value, "__next__") and hasattr(value, "element_spec")
        return Stream(value.element_spec) if known else None

    def is_now(self, value: Any) -> None:
        """Let ``value`` be the iterator from here on, on this thread."""
        self._now.set(value)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if CURRENT.get() is not None:
            return drawn(self._step, self.element_spec)
        return next(self._now.get())

    def get_next(self) -> Any:
        """The next element; at the end the error that the iterator has for it."""
        return drawn(self._step, self.element_spec) if CURRENT.get() is not None else self._step()

    def _step(self) -> Any:
        now = self._now.get()
        return now.get_next() if hasattr(now, "get_next") else next(now)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(repr(self.element_spec))


def paired(specs: Any, values: Any) -> Sequence[tuple[Stream, Any]]:
    """The streams among ``specs``, and the iterators that stand in their places."""
    here, there = (tree.leaves(v, with_none=True) for v in (specs, values))
    if len(here) != len(there):
        return []
    return [(s, v) for s, v in zip(here, there, strict=True) if isinstance(s, Stream)]
