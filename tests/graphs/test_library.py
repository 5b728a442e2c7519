"""A library that computes with Tensors, called by a program whose values are of another kind."""

from __future__ import annotations

import types

import disttrain as dt
from disttrain.graphs import CURRENT, Graph
from disttrain.graphs.graph import Symbol
from disttrain.graphs.library import Library


class Cover:
    """The program's kind of value."""

    def __init__(self, tensor):
        self.tensor = tensor


class Covers(Library):
    packages = ("inner.",)
    open = 0

    def inward(self, value):
        return value.tensor if isinstance(value, Cover) else value

    def outward(self, value):
        return Cover(value) if isinstance(value, dt.Tensor) else value

    def is_value(self, value):
        return isinstance(value, (Cover, Symbol))

    def tensor(self, value):
        return self.inward(value)


INNER = types.ModuleType("inner.layers")
exec("def ask(fn, *args): return fn(*args)", INNER.__dict__)
SEEN = []


def scaled(x, by=2.0):
    SEEN.append(CURRENT.get())
    x = x.tensor if isinstance(x, Cover) else x
    return {"out": x * by}


def test_each_side_gets_its_kind():
    entry = Covers().entry(scaled, "Scaled")
    assert entry(Cover(dt.ones(2)))["out"].tensor.tolist() == [2.0, 2.0]
    assert INNER.ask(entry, dt.ones(2))["out"].tolist() == [2.0, 2.0]
    assert Covers().keeping(lambda x: [x])(Cover(dt.ones(1)))[0].tolist() == [1.0]
    given = []
    taking = Covers().taking(lambda owner, *args: given.extend(args))
    taking(None, Cover(dt.ones(1)), 3)
    assert isinstance(given[0], dt.Tensor) and given[1] == 3


def test_a_call_in_a_traced_function_is_one_operation():
    entry = Covers().entry(scaled, "Scaled")
    SEEN.clear()
    with Graph("g") as graph:
        x = graph.placeholder(dt.ones(2), dt.ones(3), "x")
        found = entry(x, by=3.0)
        assert isinstance(found["out"], Symbol) and found["out"].shape.as_list() == [None]
        entry(Cover(dt.ones(2)))  # a constant
        Covers().entry(lambda x: SEEN.append("effect"), "Effect", effect=True)(x)
        graph.finish([found["out"]])
    kinds = [op.type for op in graph.operations]
    assert kinds == ["Placeholder", "Scaled", "Const", "Scaled", "Effect"]
    assert SEEN and all(s is None for s in SEEN)
    assert graph.run([dt.tensor([1.0, 2.0])])[0].tolist() == [3.0, 6.0] and SEEN[-1] == "effect"


def test_state_is_made_before():
    made = []

    class Late(Covers):
        def ready(self, owner):
            return bool(made)

    with Graph("g") as graph:
        one = dt.ones(2)
        x = graph.placeholder(one, one, "x")
        Late().entry(lambda x: made.append(1) or x, "Made")(x)
    assert len(made) == 2
