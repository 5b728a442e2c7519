"""Cells in traced functions: read and assigned at every run."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import DisttrainError
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.cells import Container, GraphCell


def add(a, b):
    graph = CURRENT.get()
    return a + b if graph is None else graph.record("Add", dt.add, [a, b])


def test_reads_and_assignments_are_operations():
    cell = GraphCell(dt.tensor([1.0, 2.0]))

    def step(x):
        cell.move("add", x)
        out = add(cell.now(), x)
        cell.move("sub", x)
        cell.move("assign", add(cell.now(), cell.now()))
        return out

    traced = Function(step)
    x = dt.tensor([1.0, 1.0])
    assert traced(x).tolist() == [3.0, 4.0]
    assert traced(x).tolist() == [4.0, 6.0]
    assert cell.value.tolist() == [4.0, 8.0]
    graph = traced.trace_of(x).graph
    assert graph.variables == [cell]
    assert [op.type for op in graph.operations][1:4] == ["AssignAdd", "Read", "Add"]


def test_it_keeps_copies():
    start = dt.tensor([1.0])
    cell = GraphCell(start, shape=[None], owner="w")
    start += 1
    assert cell.value.tolist() == [1.0]
    assert cell.shape.is_compatible_with((3,)) and cell.owner == "w"


@pytest.mark.parametrize(("how", "wanted"), [("update", [9.0, 2.0]), ("add", [10.0, 2.0]),
                                             ("amin", [1.0, 2.0])])  # fmt: skip
def test_scatters(how, wanted):
    cell = GraphCell(dt.tensor([1.0, 2.0]))
    cell.scatter(how, dt.tensor([[0]]), dt.tensor([9.0]))
    assert cell.value.tolist() == wanted


def test_parts_are_put():
    cell = GraphCell(dt.tensor([1.0, 2.0]))
    before = cell.now()
    cell.put_item(slice(1, None), dt.tensor([5.0]))
    assert (before.tolist(), cell.value.tolist()) == ([1.0, 2.0], [1.0, 5.0])


def test_gradients_of_rows():
    cell = GraphCell(dt.tensor([[1.0], [2.0]]))
    traced = Function(lambda i: CURRENT.get().record("Gather", cell.picked, [i]))
    with dt.GradientTape() as tape:
        out = traced(dt.tensor([1, 1])).sum()
    assert tape.gradient(out, cell).dense().tolist() == [[0.0], [2.0]]
    assert traced.traces[0].graph.variables == [cell]
    with pytest.raises(DisttrainError):
        cell.picked(dt.tensor([2]))


def test_containers_find_cells():
    net = Container()
    net.b, net.a = GraphCell(dt.ones(1)), [{"w": GraphCell(dt.ones(2), trainable=False)}]
    net.inner = Container()
    net.inner.c = net.b
    assert net.variables == (net.a[0]["w"], net.b)
    assert net.trainable_variables == (net.b,) == net.inner.variables
    assert net.non_trainable_variables == (net.a[0]["w"],)
    assert net.submodules == (net.inner,)
