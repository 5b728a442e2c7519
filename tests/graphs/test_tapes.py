"""Tapes inside of traced functions."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd.cells import Cell, Rows
from disttrain.errors import AutogradError
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.tapes import StagedTape


def do(call, *inputs):
    graph = CURRENT.get()
    return call(*inputs) if graph is None else graph.record("Op", call, list(inputs))


def asked(tape, out, *sources):
    return tape.ask([out], lambda real, found, y: real.gradient([y], found), list(sources))


def slope(x, pause=False):
    tape = StagedTape()
    tape.do("Enter", lambda real: real.__enter__() and None)
    tape.do("Watch", lambda real, v: real.watch(v), x)
    y = do(dt.square, x)
    if pause:
        with tape.stop_recording():
            y = do(dt.square, x)
    tape.do("Exit", lambda real: real.__exit__())
    return asked(tape, y, x)[0]


def test_gradients_of_every_run():
    traced = Function(slope)
    for n in (3.0, 5.0):
        assert float(slope(dt.tensor(n))) == float(traced(dt.tensor(n))) == 2 * n
    assert traced.count == 1
    assert slope(dt.tensor(3.0), True) is None


def test_rows_of_cells():
    cell = Cell(dt.arange(3.0))

    def rows(at):
        tape = StagedTape()
        tape.do("Enter", lambda real: real.__enter__() and None)
        picked = do(cell.rows, at)
        tape.do("Exit", lambda real: real.__exit__())
        (found,) = asked(tape, picked, cell)
        assert isinstance(found, Rows)
        return found.values, found.indices

    for fn in (rows, Function(rows)):
        values, places = fn(dt.tensor([2, 0]))
        assert (values.tolist(), places.tolist()) == ([1.0, 1.0], [2, 0])


def test_a_tape_that_does_not_record():
    with pytest.raises(AutogradError, match="not recording"), StagedTape().stop_recording():
        pass
