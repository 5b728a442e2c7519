"""Tapes inside of traced functions."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd.cells import Cell, Rows
from disttrain.errors import AutogradError
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.tapes import StagedTape, recorded, records, settled


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


def test_it_is_a_tape_by_itself():
    cell = Cell(dt.tensor([1.0, 2.0]))

    def step(x):
        with StagedTape(persistent=True) as tape:
            tape.watch([x])
            y = do(lambda v: v * v * cell.read(), x)
        assert tape.watched_variables() == (cell,)
        grads = tape.gradient(y, {"x": x, "w": cell}, output_gradients=do(dt.ones_like, x))
        return grads["x"], grads["w"], tape.jacobian(y, x)

    for fn in (step, Function(step)):
        for n in (1.0, 3.0):
            by_x, by_cell, matrix = fn(dt.tensor([n, 1.0]))
            assert by_x.tolist() == [2 * n, 4.0]
            assert by_cell.tolist() == [n * n, 1.0]
            assert matrix.tolist() == [[2 * n, 0.0], [0.0, 4.0]]


def test_jacobians_of_examples():
    x = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
    with StagedTape() as tape:
        tape.watch(x)
        y = x * x
    assert tape.batch_jacobian(y, x)[1].tolist() == [[6.0, 0.0], [0.0, 8.0]]


def test_cells_are_targets():
    cell = Cell(dt.tensor([1.0]))
    with StagedTape() as tape:
        cell.read()
    assert tape.gradient(cell, cell).tolist() == [1.0]
    tape.reset()
    assert tape.watched_variables() == ()


def test_results_outside_of_tapes_are_not_recorded():
    x = dt.ones(1, requires_grad=True) * 2
    assert not settled(x).requires_grad and not records()
    with recorded():
        assert settled(x) is x and records()
    with StagedTape():
        assert settled(x) is x and records()
    assert settled("text") == "text"
