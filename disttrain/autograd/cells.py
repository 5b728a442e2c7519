"""Cells: places for tensors that are replaced, and never written to.

What was read before, by a program or for a gradient, stays as it was read. While a ``GradientTape``
records, a read gives a leaf of its own over the same memory, of which the tape is told: so a tape
knows the gradient of a cell that was read, replaced and read again, and that of the rows that were
picked from it (``Rows``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..context import thread
from ..core.tensor import Tensor
from ..ops import api as ops


class Rows:
    """The gradient of a cell of which rows were read: ``values`` at ``indices``, zero elsewhere."""

    def __init__(self, values: Tensor, indices: Tensor, shape: tuple[int, ...]) -> None:
        self.values, self.indices, self.shape = values, indices, shape

    def dense(self) -> Tensor:
        """All of it."""
        zeros = ops.zeros(self.shape, dtype=self.values.dtype)
        return zeros.index_add(0, self.indices.long(), self.values)


class Cell:
    """Holds ``value``; ``trainable``: tapes watch it without being told."""

    def __init__(self, value: Any, trainable: bool = True) -> None:
        self.value, self.trainable = value, trainable

    def _recorders(self) -> list[Any]:
        """The tapes that record, and watch it."""
        if not thread.tapes or not isinstance(self.value, Tensor):
            return []
        real = self.value.dtype.is_floating_point or self.value.dtype.is_complex
        return [tape for tape in thread.tapes if real and tape.notes.wants(self)]

    def read(self) -> Any:
        """The value."""
        wanted = self._recorders()
        if not wanted:
            return self.value
        known = (tape.notes.leaf(self) for tape in thread.tapes)
        leaf = next((leaf for leaf in known if leaf is not None), None)
        if leaf is None:
            leaf = self.value.detach().requires_grad_()
        for tape in wanted:
            tape.notes.add(self, leaf)
        return leaf

    def rows(self, indices: Tensor) -> Tensor:
        """``value[indices]``; its gradient is that of rows."""
        found = self.value.detach().index_select(0, indices.reshape(-1).long())
        wanted = self._recorders()
        found = found.requires_grad_() if wanted else found
        for tape in wanted:
            tape.notes.row(self)[1].append((indices, found))
        return found.reshape(*indices.shape, *found.shape[1:])


_AWAITING = "cells.awaiting"


def awaiting() -> dict[Any, Callable[[], bool]]:
    """What waits on this rank for cells that are not there yet: by a key, a function that gives
    True when it has found all. It is called whenever there may be new ones (``arrived``)."""
    found: dict[Any, Callable[[], bool]] = thread.rank.slots.setdefault(_AWAITING, {})
    return found


def arrived() -> None:
    """There may be new cells, or known ones in new places."""
    waiting = awaiting()
    for key, settle in list(waiting.items()):
        if settle():
            waiting.pop(key, None)


def announced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, which makes cells or what is like them."""

    @functools.wraps(fn)
    def making(*args: Any, **kwargs: Any) -> Any:
        found = fn(*args, **kwargs)
        arrived()
        return found

    return making


class Notes:
    """The cells that a tape has seen: for each the leaves that were read, and rows of it."""

    def __init__(self, automatic: bool) -> None:
        self.automatic = automatic
        self.chosen: list[Cell] = []  # watched by name
        self.seen: dict[int, tuple[list, list, Cell]] = {}

    def wants(self, cell: Cell) -> bool:
        """Whether ``cell`` is watched."""
        return (self.automatic and cell.trainable) or any(c is cell for c in self.chosen)

    def row(self, cell: Cell) -> tuple[list, list, Cell]:
        """What was read of it: leaves, and (indices, leaf) of rows."""
        return self.seen.setdefault(id(cell), ([], [], cell))

    def holds(self, leaf: Tensor) -> bool:
        """Whether ``leaf`` was read of a cell."""
        rows = self.seen.values()
        return any(one is leaf for leaves, parts, _ in rows for one in
                   (*leaves, *(part for _, part in parts)))  # fmt: skip

    def of(self, source: Any) -> tuple[list, list]:
        """The leaves that stand for a source, which a tensor is itself."""
        if not isinstance(source, Cell):
            return [source], []
        leaves, rows, _ = self.seen.get(id(source), ([], [], source))
        return list(leaves), list(rows)

    def leaf(self, cell: Cell) -> Tensor | None:
        """The leaf over what ``cell`` is now."""
        leaves = self.of(cell)[0]
        if not leaves:
            return None
        leaf, now = leaves[-1], cell.value
        return leaf if leaf.data_ptr() == now.data_ptr() and leaf.shape == now.shape else None

    def add(self, cell: Cell, leaf: Tensor) -> None:
        """``leaf`` was read."""
        leaves = self.row(cell)[0]
        if not any(one is leaf for one in leaves):
            leaves.append(leaf)

    def cells(self) -> list[Cell]:
        """All that was read or watched, in order."""
        seen = [row[2] for row in self.seen.values()]
        return [*seen, *(c for c in self.chosen if not any(c is s for s in seen))]


def total(found: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of what is there."""
    there = [g for g in found if g is not None]
    out = there[0] if there else None
    for g in there[1:]:
        out = g if out is None else out + g
    return out


def joined(cell: Any, dense: Tensor | None, rows: Sequence[tuple]) -> Any:
    """The gradient of a source from that of its leaves and those of its rows."""
    rows = [(at, g) for at, g in rows if g is not None]
    if not rows:
        return dense
    places = ops.cat([at.reshape(-1) for at, _ in rows])
    values = ops.cat([g for _, g in rows])
    if dense is None:
        return Rows(values, places, tuple(cell.value.shape))
    return dense.index_add(0, places.long(), values)
