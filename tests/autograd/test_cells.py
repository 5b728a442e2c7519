"""Cells: read, replaced, watched by tapes."""

from __future__ import annotations

import disttrain as dt
from disttrain.autograd.cells import Cell, Rows, announced, arrived, awaiting

X = dt.tensor([1.0, 2.0])


def test_a_cell_that_is_replaced_keeps_what_was_read():
    cell = Cell(X)
    with dt.GradientTape(persistent=True) as tape:
        before = (cell.read() * cell.read()).sum()
        cell.value = dt.tensor([5.0, 5.0])
        after = (cell.read() * 3.0).sum()
    assert tape.gradient(before, cell).tolist() == [2.0, 4.0]
    assert tape.gradient([before, after], {"c": cell})["c"].tolist() == [5.0, 7.0]
    assert tape.watched_variables() == (cell,)
    assert cell.read() is cell.value


def test_what_is_watched():
    still = Cell(X, trainable=False)
    with dt.GradientTape() as tape:
        out = still.read().sum()
    assert tape.gradient(out, still) is None
    with dt.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(still)
        out = still.read().sum()
    assert tape.gradient(out, still).tolist() == [1.0, 1.0]
    other = Cell(X)
    with dt.GradientTape() as tape:
        out = X * 1.0
    assert tape.gradient(out, other, unconnected_gradients="zero").tolist() == [0.0, 0.0]


def test_rows():
    table = Cell(dt.ones(3, 2))
    with dt.GradientTape(persistent=True) as tape:
        picked = (table.rows(dt.tensor([1, 1])) * 2.0).sum()
        both = picked + table.read().sum()
    found = tape.gradient(picked, table)
    assert isinstance(found, Rows)
    assert found.dense().tolist() == [[0.0, 0.0], [4.0, 4.0], [0.0, 0.0]]
    assert tape.gradient(both, table).tolist() == [[1.0, 1.0], [5.0, 5.0], [1.0, 1.0]]


def test_jacobians_and_second_derivatives():
    cell = Cell(X)
    with dt.GradientTape() as tape:
        out = cell.read() ** 2
    assert tape.jacobian(out, cell).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    with dt.GradientTape() as outer:
        with dt.GradientTape() as inner:
            cubes = (cell.read() ** 3).sum()
        first = inner.gradient(cubes, cell)
    assert outer.gradient(first, cell).tolist() == [6.0, 12.0]


def test_cells_are_targets():
    cell, other = Cell(X), Cell(X)
    with dt.GradientTape(persistent=True) as tape:
        out = cell.read() * 3.0
        row = cell.rows(dt.tensor([0]))
    assert tape.gradient([cell, out], cell).tolist() == [4.0, 4.0]
    assert tape.gradient([cell, out], cell, [X, None]).tolist() == [4.0, 5.0]
    assert tape.gradient([cell, row], cell).tolist() == [2.0, 1.0]
    assert tape.gradient(cell, [other, cell])[0] is None


def test_who_waits_for_cells_is_told_until_it_has_all():
    cells, seen = [], []
    awaiting().clear()
    awaiting()["mine"] = lambda: seen.append(len(cells)) or len(cells) == 2
    make = announced(lambda: cells.append(Cell(X)) or cells[-1])
    assert make() is cells[0] and "mine" in awaiting()
    make()
    arrived()
    assert seen == [1, 2] and not awaiting()
