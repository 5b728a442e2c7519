"""Steps in which each reads what the one before has made: products with the same matrices, and
kernels on what those give (see ``llvm/kernels/recurrence.py``).

    run(phases, steps, rows, backwards)

By one call of generated code for all steps, on several threads by rows where there is much to do;
elsewhere step by step.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address
from ...family import Family
from ..copies import fill

_SPREAD = 1 << 17  # products of a step from which it takes several threads


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first recurrence."""
    return importlib.import_module("...llvm.kernels.recurrence", __package__)


class Along(NamedTuple):
    """The part of an array (steps, rows, units) that a step has. ``shift``: of the step that is
    done so many later, 1 or -1. ``end``: what the step has that has none so (None: nothing); with
    no shift, what the first step has, if given."""

    a: ndarray
    shift: int = 0
    end: ndarray | None = None

    @property
    def odd(self) -> int:
        """The step that has ``end``; -1 is none."""
        if self.shift > 0:
            return len(self.a) - 1
        return 0 if self.shift or self.end is not None else -1

    def at(self, k: int, backwards: bool) -> ndarray | None:
        """The part of the step that is done as number ``k``."""
        if k == self.odd:
            return self.end
        k += self.shift
        return self.a[-1 - k if backwards else k]

    def track(self, backwards: bool) -> tuple[int, int, int, int, int]:
        """What generated code is told of it."""
        a, end = self.a, self.end
        base, (far, stride, _) = address(a), a.strides
        if backwards:
            base, far = base + (len(a) - 1) * far, -far
        return base + self.shift * far, far, stride, self.odd, 0 if end is None else address(end)


class Phase(NamedTuple):
    """``groups`` of columns of the sum of all ``x @ w`` + ``first``, and what is made of them:
    ``cell`` is given the groups as s0, s1 ... and ``arrays`` by name. ``ws``: (terms, groups *
    units) for each of ``xs``; in any order of memory."""

    xs: tuple[Along, ...]
    ws: tuple[ndarray, ...]
    groups: int
    first: ndarray | None
    cell: Family
    arrays: Mapping[str, Along]

    @property
    def units(self) -> int:
        return self.ws[0].shape[1] // self.groups

    @property
    def kind(self) -> np.dtype:
        return self.ws[0].dtype


def repeated(a: ndarray, count: int) -> ndarray:
    """The same memory for each of ``count`` steps."""
    return np.lib.stride_tricks.as_strided(a, (count, *a.shape), (0, *a.strides))


def parts(a: ndarray, count: int, name: str) -> dict[str, Along]:
    """(steps, rows, count * units) as ``count`` arrays called name0, name1 ..."""
    width = a.shape[-1] // max(count, 1)
    return {f"{name}{k}": Along(a[..., k * width : (k + 1) * width]) for k in range(count)}


def in_rows(a: ndarray) -> ndarray:
    """``a``, or its copy if its units are not neighbours."""
    return a if a.strides[-1] == a.itemsize else np.ascontiguousarray(a)


def run(phases: Sequence[Phase], steps: int, rows: int, backwards: bool) -> None:
    """Do the steps, from the last one on if ``backwards``."""
    kind = phases[0].kind
    if steps == rows == 1:  # to lay out matrices takes longer than to read them once
        _step_by_step(phases, steps, rows, backwards)
        return
    forms, whole = _forms(kind, *((p.cell[kind], p.groups, p.units, len(p.xs)) for p in phases))
    if whole is None:
        _step_by_step(phases, steps, rows, backwards)
        return
    tracks: list[int] = []
    given, alive = [], []
    for p, form in zip(phases, forms):
        for x in p.xs:
            tracks += x.track(backwards)
        for name in form.names:
            tracks += p.arrays[name].track(backwards)
        panels = _panels(p.ws, form)
        first = np.zeros(p.groups * p.units, kind) if p.first is None else p.first
        firsts = _panels((first[None],), form)
        alive += [panels, firsts]
        terms = [x.a.shape[2] for x in p.xs]
        assert terms == [len(w) for w in p.ws]
        given += [p.units, *terms, address(panels), address(firsts)]
    told = np.array(tracks, np.int64)

    def some(part: slice) -> None:
        whole(address(told), steps, part.stop - part.start, part.start, *given)

    work = rows * sum(w.size for p in phases for w in p.ws)
    several = None if work >= _SPREAD else 1
    threads.spread([partial(some, part) for part in threads.portions(rows, 1, several)])


class _Form(NamedTuple):
    """How generated code does a phase, and what it is given beside the product."""

    groups: int
    blocks: int
    lanes: int
    names: tuple[str, ...]


@cache
def _forms(kind: np.dtype, *phases: tuple[Any, int, int, int]) -> tuple[list[_Form], Any]:
    """For phases (program, groups, units, inputs); no code where none can be made."""
    code = _code() if kind == np.float32 and kind.isnative else None
    if code is None or not code.lanes():
        return [], None
    made = [
        code.Phase(cell.kernel, n, code.blocks(n, units), inputs)
        for cell, n, units, inputs in phases
    ]
    forms = [_Form(m.groups, m.blocks, code.lanes(), tuple(a.name for a in m.arrays)) for m in made]
    return forms, code.sequence(*made)


def _panels(ws: tuple[ndarray, ...], form: _Form) -> ndarray:
    """Each (terms, groups * units), one below the other, as (panels, terms, groups, blocks *
    lanes), with zeros at the end."""
    groups, width = form.groups, form.blocks * form.lanes
    units = ws[0].shape[1] // groups
    whole, rest = divmod(units, width)
    shape = (whole + (rest > 0), sum(map(len, ws)), groups, width)
    out = (np.zeros if rest else np.empty)(shape, ws[0].dtype)
    row = 0
    for w in ws:
        below, w = slice(row, row + len(w)), w.reshape(len(w), groups, units)
        row += len(w)
        parts = w[..., : whole * width].reshape(len(w), groups, whole, width)
        parts, into = parts.transpose(2, 0, 1, 3), out[:whole, below]
        if not fill(into, parts):
            into[...] = parts
        if rest:
            out[whole, below, :, :rest] = w[..., whole * width :]
    return out


def _step_by_step(phases: Sequence[Phase], steps: int, rows: int, backwards: bool) -> None:
    made = [np.empty((rows, p.groups * p.units), p.kind) for p in phases]
    for k in range(steps):
        for p, product in zip(phases, made):
            product[...] = 0 if p.first is None else p.first
            for x, w in zip(p.xs, p.ws):
                part = x.at(k, backwards)
                if part is not None:
                    product += part @ w
            sums = {n: a.a[0] for n, a in parts(product[None], p.groups, "s").items()}
            program = p.cell[p.kind]
            program(
                *(sums[a.name] if a.name in sums else p.arrays[a.name].at(k, backwards)
                  for a in program.kernel.arrays)
            )  # fmt: skip


__all__ = ["Along", "Phase", "in_rows", "parts", "repeated", "run"]
