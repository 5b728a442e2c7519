"""Functions of tensors as operations: now, and in traced functions."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.graphs import Function
from disttrain.graphs.operations import Operations

made = Operations()
FLOATS = frozenset({"float32", "float64"})
NAMES = made.table({
    "scaled": ("Scale", lambda x, by: x * by, "x! by=2.0 _comment=None", FLOATS),
    "joined": ("Concat", lambda parts, axis: dt.cat(parts, axis), "parts* axis=0"),
    "larger": ("Maximum", dt.maximum, "a~ b~"),
    "cast": ("Cast", lambda x, kind: x.to(kind), "x! kind@='float32'"),
    "halves": ("Split", lambda x: x.chunk(2), "x!", None, list),
})  # fmt: skip


def both(fn, *args):
    """What ``fn`` gives now and traced, which is the same."""
    now, traced = fn(*args), Function(fn)(*args)
    assert now.tolist() == traced.tolist()
    return now.tolist()


def test_rows_of_a_table():
    x = dt.tensor([1.0, 2.0])
    assert both(NAMES["scaled"], x) == [2.0, 4.0]
    assert both(lambda v: NAMES["scaled"](v, by=3.0), x) == [3.0, 6.0]
    assert both(lambda v, n: NAMES["scaled"](v, n), x, dt.tensor(4.0)) == [4.0, 8.0]
    assert both(lambda v: NAMES["joined"]([v, [3.0]]), x) == [1.0, 2.0, 3.0]
    assert both(lambda v: NAMES["larger"](v, 1.5), x) == [1.5, 2.0]
    assert NAMES["cast"](x, dt.int64).dtype is dt.int64
    assert [h.tolist() for h in NAMES["halves"](x)] == [[1.0], [2.0]]
    assert str(NAMES["scaled"].__signature__) == "(x, by=2.0, comment=None, name=None)"


def test_one_and_two_tensors():
    double = made.unary("double", "Double", lambda x: x * 2, FLOATS)
    add = made.binary("add", "Add", dt.add)
    assert both(lambda x: double(x), dt.tensor([1.0])) == [2.0]
    assert both(lambda x: add(1, x), dt.tensor([1.0])) == [2.0]
    assert add.__name__ == "add" and "Add" in made.pairs
    with pytest.raises(
        TypeError, match=r"Double: disttrain\.int64 given; it takes float32, float64"
    ):
        double(dt.tensor(1))
    with pytest.raises(TypeError, match=r"operand 1 is of disttrain\.int64"):
        add(dt.tensor(1.0), dt.tensor(1))


def test_types_of_their_own():
    own = Operations()
    add = own.binary("add", "Add", dt.add)
    own.apart["Add"] = {"bool": dt.logical_or}
    assert add(dt.tensor(True), dt.tensor(True)).tolist() is True
    assert add(dt.tensor(1), dt.tensor(1)).tolist() == 2


def test_names_in_graphs():
    fn = Function(lambda x: NAMES["scaled"](x, name="twice"))
    graph = fn.trace_of(dt.ones(2)).graph
    assert [op.name for op in graph.operations] == ["x", "twice", "Identity"]


def test_failures_are_told_by_who_knows():
    class Strict(Operations):
        def failed(self, kind, inputs, error):
            return ValueError(f"{kind} of {len(inputs)}")

    add = Strict().binary("add", "Add", dt.add)
    with pytest.raises(ValueError, match="Add of 2"):
        add(dt.ones(2), dt.ones(3))


def test_values_of_a_traced_function_have_no_numbers():
    kept = []
    Function(lambda x: kept.append(NAMES["scaled"](x)) or x)(dt.ones(2))
    with pytest.raises(RuntimeError, match="used outside"):
        NAMES["scaled"](kept[0])
