"""Functions that say their gradients themselves."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd.cells import Cell
from disttrain.autograd.pulled import explained, pulled


def test_gradients_as_said():
    x = dt.tensor(3.0, requires_grad=True)
    a, b = pulled(lambda v: ((v * 2, v * 3), lambda g, h: [g * 10 + h]), x)
    assert (a.item(), b.item()) == (6.0, 9.0)
    (a + 2 * b).backward()
    assert x.grad.item() == 12.0


def test_functions_of_programs():
    x = dt.tensor(3.0, requires_grad=True)
    outs, rebuild = explained(lambda v: ({"twice": v * 2}, lambda g: g * 10), [x])
    assert rebuild(outs)["twice"].item() == 6.0
    outs[0].backward()
    assert x.grad.item() == 10.0
    outs, _ = explained(lambda v: (v, lambda g: (g, g)), [x])
    with pytest.raises(ValueError, match="expected to return 1 gradients, but returned 2"):
        outs[0].backward()


def test_cells_that_are_read_under_tapes():
    cell, x = Cell(dt.tensor(5.0)), dt.tensor(3.0)
    seen = []

    def fn(v):
        def grad(g, variables):
            seen.append(variables)
            return g * 10, [g * 100]

        return v * cell.read(), grad

    with dt.GradientTape() as tape:
        tape.watch(x)
        (out,), _ = explained(fn, [x])
    assert out.item() == 15.0
    assert [g.item() for g in tape.gradient(out, [x, cell])] == [10.0, 100.0]
    assert seen == [[cell]]
    with dt.GradientTape(), pytest.raises(TypeError, match="must accept a 'variables'"):
        explained(lambda v: (v * cell.read(), lambda g: g), [x])
