"""Updates of many parameters by one call: steps of a program that stand together in it.

Optimizers update parameter by parameter; each call of a kernel for a few elements costs more than
the elements. The kernel goes over a table of the arrays of all (``optim/rules.py``). They are done
in their order, so the table may be used whatever they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

from numpy import ndarray

_LEAST = 2  # updates that are worth a table


class Updates:
    """Some steps, to be run as one: of one rule with the same numbers. ``given``: the slots of
    gradients, then those of all that is written to."""

    many = False
    made: tuple[int, ...] = ()

    def __init__(self, steps: Sequence[Any]) -> None:
        self.steps = steps
        self.prim, self.params, self.words = steps[0].prim, steps[0].params, dict[str, Any]()
        self.count = len(steps)
        self.width = len(steps[0].given) - 1
        gradients = [s.given[1] for s in steps]
        self.given = [*gradients, *(at for s in steps for at in (s.given[0], *s.given[2:]))]
        self.gone = tuple(at for s in steps for at in s.gone)
        # What is written to, and what updates that by one call, if anything does; set together, as
        # threads may replay at the same time.
        self.table: tuple[tuple, Callable[[dict, Any], bool] | None] = (), None
        self.forward = self._forward

    def _forward(self, *arrays: ndarray) -> None:
        gradients, written = arrays[: self.count], arrays[self.count :]
        known, run = self.table
        if len(known) != len(written) or not all(map(is_, written, known)):
            n = self.width
            run = self.prim.grouped([written[k : k + n] for k in range(0, len(written), n)])
            self.table = written, run
        if run is None or not run(self.params, gradients):
            self._one_by_one(gradients, written)

    def _one_by_one(self, gradients: tuple, written: tuple) -> None:
        n = self.width
        for k, (step, g) in enumerate(zip(self.steps, gradients, strict=True)):
            p, *state = written[k * n : (k + 1) * n]
            step.forward(p, g, *state, **step.words)


def together(steps: Sequence[Any]) -> list[Any]:
    """``steps`` with updates that may be one in their place."""
    done: list[Any] = []
    some: list[Any] = []
    for step in [*steps, None]:
        if some and (step is None or not _alike(some[0], step)):
            done += [Updates(some)] if len(some) >= _LEAST else some
            some = []
        if step is not None:
            (some if step.prim.grouped is not None else done).append(step)
    return done


def singly(steps: Sequence[Any]) -> Iterator[Any]:
    """The steps that ``together`` was given."""
    for step in steps:
        yield from step.steps if step.__class__ is Updates else (step,)


def _alike(a: Any, b: Any) -> bool:
    return a.prim is b.prim and len(a.given) == len(b.given) and a.params == b.params


__all__ = ["Updates", "singly", "together"]
