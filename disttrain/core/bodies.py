"""Bodies: functions of tensors as data, for instructions that run them (loops, branches).

A body is a list of steps, each a primitive on values and plain numbers. It runs on arrays, once for
each turn of a loop, and on Tensors, through the gate, so that every transform goes through it.
Where the compiler is loaded, it makes the steps fewer (``Body.shorten``), by its own passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .gate import Primitive, finish
from .tensor import Tensor

ndarray = np.ndarray
_OFTEN = 64  # turns


# A value that no derivative goes through.
held = Primitive("held", lambda a: a, ("a",))
held.shape, held.elementwise = (lambda a: (a.shape, a.dtype)), True


class Ref:
    """A value of a body, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"%{self.number}"


class Step:
    """``made = prim(*args, **params)``; ``args`` are Refs and plain values."""

    __slots__ = ("args", "made", "params", "prim")

    def __init__(self, prim: Primitive, args: tuple, params: dict, made: Sequence[int]) -> None:
        self.prim, self.args, self.params, self.made = prim, args, params, list(made)

    @property
    def effect(self) -> bool:
        """Whether it must run even where nobody uses what it makes."""
        return bool(self.prim.checks or self.prim.outward)


class Body:
    """``metas``: shape and type of every value, of which the first ``count`` are given, and the
    next are the constants ``held``. ``ends``: the numbers of the results."""

    shorten: Callable[[Body], Body] | None = None  # the compiler's

    def __init__(
        self, count: int, steps: list[Step], metas: list[tuple], ends: list[int],
        held: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        self.count, self.metas, self.ends, self.held = count, metas, ends, tuple(held)
        self.steps = needed(steps, ends)
        self.turns = 0
        self._run: Callable[[list], list] | None = None
        self._short = False

    @property
    def given(self) -> list[tuple]:
        """Shapes and types of what it is given."""
        return self.metas[: self.count]

    @property
    def results(self) -> list[tuple]:
        """Shapes and types of what it gives."""
        return [self.metas[i] for i in self.ends]

    @property
    def effects(self) -> bool:
        """Whether it is to run even where nobody uses its results."""
        return any(step.effect for step in self.steps)

    def __str__(self) -> str:
        lines = [f"body of {self.count}:"]
        for step in self.steps:
            made = ", ".join(f"%{i}: {self.metas[i][1]}{list(self.metas[i][0])}" for i in step.made)
            lines.append(f"  {made} = {step.prim.name}({', '.join(map(str, step.args))})")
        return "\n".join([*lines, f"  return {', '.join(f'%{i}' for i in self.ends)}"])

    def __call__(self, *values: Any) -> list:
        """The results for Tensors, through the gate."""
        slots = dict(enumerate((*values, *self.held)))
        for step in self.steps:
            args = [slots[a.number] if a.__class__ is Ref else a for a in step.args]
            out = step.prim(*args, **step.params)
            outs = out if step.prim.multi else (out,)
            slots.update(zip(step.made, outs, strict=True))
        return [slots[i] for i in self.ends]

    def run(self, turns: int = 1) -> Callable[[list], list]:
        """The function of a list of arrays that gives the results, which may be views of these. It
        is to be called so many times: what runs often is worth shortening."""
        self.turns += turns
        shorten = Body.shorten
        if self.turns >= _OFTEN and shorten is not None and not self._short:
            self._run, self._short = _laid_out(shorten(self)), True
        elif self._run is None:
            self._run = _laid_out(self)
        return self._run


class BodyCall(Primitive):
    """A body as one instruction. What it is on Tensors, who derives from it says (``__call__``)."""

    def __init__(self, name: str, body: Body) -> None:
        super().__init__(name, self._forward, ())
        self.body = body
        self.multi = self.kinds = True
        self.shape = lambda *given, **params: body.results
        self.checks = any(step.prim.checks for step in body.steps)
        self.outward = any(step.prim.outward for step in body.steps)

    def _forward(self, *arrays: Any) -> list:
        return self.body.run()(list(arrays))

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        if any(getattr(a, "has_data", True) is False for a in arrays):
            return next(a for a in arrays if not getattr(a, "has_data", True)).run(
                self, arrays, params
            )
        return self.body.run()(list(arrays))


def needed(steps: list[Step], ends: list[int]) -> list[Step]:
    """The steps that results depend on, and those with effects."""
    wanted, keep = set(ends), []
    for step in reversed(steps):
        if step.effect or not wanted.isdisjoint(step.made):
            keep.append(step)
            wanted.update(a.number for a in step.args if a.__class__ is Ref)
    return keep[::-1]


def own(r: Any, given: Sequence, body: Body) -> Any:
    """A result of ``body`` in memory of its own, of what it was ``given``."""
    if r.__class__ is not ndarray:
        return r
    fresh = r.base is None and all(r is not a for a in (*given, *(t.array for t in body.held)))
    return r if fresh else r.copy()


def _laid_out(body: Body) -> Callable[[list], list]:
    """The steps as calls on numbered slots, each of which is empty after its last use."""
    place = {i: i for i in range(body.count + len(body.held))}
    blank: list[Any] = [t.array for t in body.held]

    def slot(value: Any = None) -> int:
        blank.append(value)
        return body.count + len(blank) - 1

    calls = []
    for step in body.steps:
        given = [place[a.number] if a.__class__ is Ref else slot(a) for a in step.args]
        for i in step.made:
            place[i] = slot()
        prim = step.prim
        plain = prim.prepared is None
        forward = prim.forward if prim.prepared is None else prim.prepared(step.params)
        words = step.params if plain else {}
        made = [place[i] for i in step.made]
        calls.append((prim, forward, given, step.params, words, made, list[int]()))
    ends = [place[i] for i in body.ends]
    last = {at: gone for _, _, given, _, _, made, gone in calls for at in (*given, *made)}
    for at in {at for *_, made, _ in calls for at in made} - {*ends}:
        last[at].append(at)

    def run(arrays: list) -> list:
        values = [*arrays, *blank]
        plain = all(a.__class__ is ndarray for a in arrays)
        for prim, forward, given, params, words, made, gone in calls:
            args = [values[i] for i in given]
            out: Any = forward(*args, **words) if plain else prim.compute(args, params)
            if prim.multi:
                for i, r in zip(made, out, strict=True):
                    values[i] = r if r.__class__ is ndarray else finish(r)
            else:
                values[made[0]] = out if out.__class__ is ndarray else finish(out)
            for i in gone:
                values[i] = None
        return [values[i] for i in ends]

    return run
