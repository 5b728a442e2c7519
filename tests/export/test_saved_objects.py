"""Objects as folders: traced functions over cells, loaded without what made them."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain import graphs
from disttrain.autograd.cells import Cell
from disttrain.errors import ConfigError, DisttrainError, SerializationError
from disttrain.export.saved_objects import SavedObjects
from disttrain.graphs import control


class Box:
    """A holder of this test."""


class Held:
    """A variable of this test."""

    def __init__(self, value, trainable=True, name=None):
        self.cell, self.name = Cell(value, trainable), name

    def read(self):
        graph = graphs.CURRENT.get()
        if graph is None:
            return self.cell.read()
        graph.uses(self)
        return graph.record("Read", self.cell.read, [])

    def put(self, fn, *inputs):
        def call(*values):
            self.cell.value = fn(self.cell.value, *values)

        if graphs.CURRENT.get() is not None:
            graphs.CURRENT.get().uses(self)
        graphs.effect("Put", call, list(inputs))


KIND = SavedObjects(
    Box,
    lambda v: getattr(v, "cell", None) if isinstance(v, Held) else None,
    Held,
    lambda t: t,
    lambda v, kind: dt.as_tensor(v).to(dt.float32 if np.dtype(kind) == np.float32 else dt.int64),
)


class Trace(graphs.Trace):
    pass


class Graph(graphs.Graph):
    def value_of(self, value):
        return value

    def uses(self, variable):
        if all(v is not variable for v in self.variables):
            self.variables.append(variable)


class Function(graphs.Function):
    graph, trace = Graph, Trace


def spec(*shape):
    return graphs.Spec(shape, dt.float32)


def op(kind, call, *inputs):
    """An operation of the graph that is being traced."""
    return graphs.CURRENT.get().record(kind, call, list(inputs))


class Net(Box):
    def __init__(self):
        dt.manual_seed(0)
        self.w = Held(dt.randn(3, 2), name="w")
        self.inner = Box()
        self.inner.count = Held(dt.tensor(0), trainable=False)
        self.rows = [Held(dt.ones(2))]
        self.nothing, self.text = None, "text"

    def forward(self, x):
        self.inner.count.put(lambda c: c + 1)
        y = op("MatMul", dt.matmul, x, self.w.read())
        return {"y": op("Add", dt.add, y, self.rows[0].read()), "kind": "scores"}

    apply = Function(forward, signature=[spec(None, 3)])


def saved(folder, **options):
    net = Net()
    KIND.save(net, folder, **options)
    return net, KIND.load(folder)


def expected(net, x):
    return x @ net.w.cell.value + net.rows[0].cell.value


def test_an_object_comes_back_without_its_class(tmp_path):
    net, loaded = saved(tmp_path / "m")
    assert isinstance(loaded, Box) and not isinstance(loaded, Net)
    assert KIND.there(tmp_path / "m") and not KIND.there(tmp_path)
    for n in (2, 1, 7):
        x = dt.randn(n, 3)
        found = loaded.apply(x)
        assert found["y"].tolist() == expected(net, x).tolist()
    assert loaded.inner.count.cell.value.item() == 3
    assert net.inner.count.cell.value.item() == 0
    assert loaded.w.name == "w" and not loaded.inner.count.cell.trainable
    assert not hasattr(loaded, "text")


def test_cells_are_shared_assigned_and_trained(tmp_path):
    net, loaded = saved(tmp_path)
    loaded.rows[0].cell.value = dt.zeros(2)
    x = dt.randn(4, 3)
    assert loaded.apply(x)["y"].tolist() == (x @ net.w.cell.value).tolist()
    loaded.w.cell.value = loaded.w.cell.value.detach().requires_grad_()
    loaded.apply(x)["y"].sum().backward()
    assert loaded.w.cell.value.grad.shape == (3, 2)


def test_what_was_loaded_is_saved_again(tmp_path):
    net, loaded = saved(tmp_path / "1")
    loaded.rows[0].cell.value = dt.ones(2) * 5
    KIND.save(loaded, tmp_path / "2", signatures=loaded.apply)
    again = KIND.load(tmp_path / "2")
    x = dt.randn(4, 3)
    assert again.apply(x)["y"].tolist() == loaded.apply(x)["y"].tolist()
    assert sorted(again.signatures["serving_default"](x)) == ["kind", "y"]


def test_functions_are_told_by_their_arguments(tmp_path):
    box = Box()
    box.twice = Function(lambda x, times=2: op("Mul", lambda v: v * times, x))
    box.twice(dt.ones(2))
    box.twice(dt.ones(3, 1), times=5)
    KIND.save(box, tmp_path)
    loaded = KIND.load(tmp_path).twice
    assert loaded([1.0, 2.0]).tolist() == [2.0, 4.0]
    assert loaded(dt.ones(3, 1), times=5).tolist() == [[5.0]] * 3
    for args, kwargs, said in (
        (([1.0],), {}, "Could not find matching"),
        ((dt.ones(2),), {"times": 5}, "Could not find matching"),
        ((), {}, "missing required argument 'x'"),
        ((dt.ones(2), 2, 3), {}, "the arguments x, times"),
        ((dt.ones(2),), {"other": 1}, "the arguments x, times"),
    ):
        with pytest.raises(ValueError, match=said):
            loaded(*args, **kwargs)


def test_what_cannot_be_saved(tmp_path):
    box = Box()
    box.read = Function(lambda x: op("Item", lambda v: v * float(v.sum()), x))
    box.read(dt.ones(2))
    with pytest.raises(DisttrainError, match="is read"):
        KIND.save(box, tmp_path / "m")
    assert not KIND.there(tmp_path / "m")
    box = Box()
    box.texts = Held(np.array([b"a"], object))
    with pytest.raises(ConfigError, match="holds no numbers"):
        KIND.save(box, tmp_path / "m")
    with pytest.raises(ConfigError, match="is no traced function"):
        KIND.save(Box(), tmp_path / "m", signatures={"f": 3})
    with pytest.raises(ConfigError, match=r"has no objects\.json"):
        KIND.load(tmp_path)


def test_damaged_folders_are_refused(tmp_path):
    saved(tmp_path)
    table = tmp_path / "objects.json"
    text = table.read_text()
    told = json.loads(text)
    for change in (
        {"version": 2}, {"root": 99}, {"root": -1}, {"root": "0"}, {"cells": 3}, {"objects": {}},
        {"signatures": {"s": {"file": "../0.dtp", "cells": []}}}, {"objects": [{"kind": "list"}]},
        {"signatures": {"s": {"file": "0.dtp", "cells": [99]}}},
    ):  # fmt: skip
        table.write_text(json.dumps({**told, **change}))
        with pytest.raises(SerializationError, match=str(table)):
            KIND.load(tmp_path)
    rng = random.Random(0)
    for _ in range(150):
        bad = bytearray(text.encode())
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(7)
        table.write_bytes(bad)
        try:
            KIND.load(tmp_path)
        except (DisttrainError, FileNotFoundError):
            pass


def test_threads_load_and_run(tmp_path):
    net, _ = saved(tmp_path)
    x, found = dt.randn(4, 3), []

    def work():
        found.append(KIND.load(tmp_path).apply(x)["y"].tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [expected(net, x).tolist()] * 4


def test_branches_and_loops_are_part_of_programs(tmp_path):
    def gate(x):
        positive = op("Greater", lambda v: v.sum() > 0, x)
        return control.cond("If", positive, lambda: op("Mul", lambda v: v * 2, x),
                            lambda: op("Neg", lambda v: -v, x))  # fmt: skip

    def halved(x):
        return control.while_loop(
            lambda v: op("Greater", lambda t: (t > 1).reshape(()), v),
            lambda v: [op("Half", lambda t: t / 2, v)],
            [x],
        )[0]

    box = Box()
    box.gate = Function(gate, signature=[spec(3)])
    box.halved = Function(halved, signature=[spec()])
    KIND.save(box, tmp_path)
    loaded = KIND.load(tmp_path)
    assert loaded.gate(dt.tensor([1.0, 2.0, 3.0])).tolist() == [2.0, 4.0, 6.0]
    assert loaded.gate(dt.tensor([-1.0, -2.0, 0.0])).tolist() == [1.0, 2.0, 0.0]
    assert loaded.halved(dt.tensor(100.0)).item() == 0.78125
    assert loaded.halved(dt.tensor(0.5)).item() == 0.5


def test_arguments_that_are_left_out_are_their_defaults(tmp_path):
    def scaled(x, twice=False):
        return op("Mul", lambda v: v * (2 if twice else 1), x)

    box = Box()
    box.scaled = Function(scaled)
    x = dt.ones(3)
    for twice in (True, False):
        box.scaled(x, twice=twice)
    box.table = {"a": Held(dt.ones(2))}
    KIND.save(box, tmp_path / "1")
    loaded = KIND.load(tmp_path / "1")
    KIND.save(loaded, tmp_path / "2")
    for again in (loaded, KIND.load(tmp_path / "2")):
        assert again.scaled(x).tolist() == again.scaled(x, False).tolist() == [1.0] * 3
        assert again.scaled(x, twice=True).tolist() == [2.0] * 3
        assert again.table["a"].cell.value.tolist() == [1.0, 1.0]
    box.scaled = Function(scaled)
    box.scaled(x, True)
    KIND.save(box, tmp_path / "3")
    with pytest.raises(ValueError, match="missing argument 'twice', which it was not traced"):
        KIND.load(tmp_path / "3").scaled(x)


def test_a_signature_calls_arguments_as_their_specifications_do(tmp_path):
    box = Box()
    named = graphs.Spec((None,), dt.float32, "inp")
    box.f = Function(lambda x: op("Mul", lambda v: v * 2, x), signature=[named])
    KIND.save(box, tmp_path, signatures=box.f)
    found = KIND.load(tmp_path).signatures["serving_default"]
    x = dt.ones(2)
    assert found(inp=x)["output_0"].tolist() == found(x)["output_0"].tolist() == [2.0, 2.0]
