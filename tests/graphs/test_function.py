"""Functions traced once for each kind of arguments."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.graphs import CURRENT, Function, Spec
from disttrain.graphs.function import run_eagerly


def add(x, y):
    return CURRENT.get().record("Add", dt.add, [x, y])


def test_it_is_traced_for_each_kind_of_arguments():
    runs = []

    def fn(x, more):
        runs.append(1)
        return {"out": add(x, x), "more": more}

    traced = Function(fn)
    assert traced(dt.ones(2), 1)["out"].tolist() == [2.0, 2.0]
    assert traced(np.float32([1, 2]), 1)["out"].tolist() == [2.0, 4.0]
    assert len(runs) == traced.count == 1
    assert traced(dt.ones(3), 1)["out"].tolist() == [2.0] * 3
    assert traced(dt.ones(2), 2)["more"] == 2
    assert traced.count == 3


def test_sizes_that_change_become_unknown():
    traced = Function(lambda x: add(x, x), relaxed=True)
    for n in range(1, 6):
        assert len(traced(dt.ones(n))) == n
    assert traced.count == 2


def test_signatures():
    traced = Function(lambda x: add(x, x), signature=[Spec([None, 2], dt.float32)])
    assert traced(dt.ones(3, 2)).shape == (3, 2)
    assert traced(dt.ones(1, 2)).shape == (1, 2)
    assert traced.count == 1
    with pytest.raises(TypeError, match="Can not cast"):
        traced(dt.ones(3, 3))
    with pytest.raises(TypeError, match="missing a required argument"):
        traced()
    assert traced.trace_of().graph.inputs[0].sizes() == [None, 2]


def test_signatures_of_nested_arguments():
    signature = [[Spec([None], dt.float32), Spec([], dt.int64)], {"q": Spec([2], dt.float32)}]
    traced = Function(lambda pair, d: (add(pair[0], pair[1]), d["q"]), signature=signature)
    out, q = traced([[1.0, 2.0, 3.0], 3], {"q": [1.0, 1.0]})
    assert (out.tolist(), q.tolist()) == ([4.0, 5.0, 6.0], [1.0, 1.0])
    with pytest.raises(TypeError, match="structure"):
        traced([[1.0]], {"q": [1.0, 1.0]})


def test_methods_and_functions_in_functions():
    class Adder:
        def __init__(self, n):
            self.n = dt.tensor(n)

        @Function
        def call(self, x):
            return add(x, self.n)

    one, two = Adder(1.0), Adder(2.0)
    outer = Function(lambda x: add(one.call(x), two.call(x)))
    assert float(outer(dt.tensor(1.0))) == 5.0
    assert one.call is one.call


def test_gradients_go_through():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    Function(lambda v: CURRENT.get().record("Mul", dt.mul, [v, v]))(x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_specification_of_a_tensor():
    found = Spec.from_tensor(dt.ones(2, 3), "x")
    assert found == Spec([2, 3], dt.float32, "x")
    assert Spec.from_spec(found).shape.ndims == 2 and found.shape.dims == [2, 3]
    assert repr(found) == "Spec(shape=(2, 3), dtype=disttrain.float32, name='x')"


def test_a_trace_is_called_and_described():
    traced = Function(lambda x, n: {"out": [add(x, x)], "n": n})
    trace = traced.trace_of(dt.ones(2), 3)
    assert trace(dt.tensor([1.0, 2.0]))["out"][0].tolist() == [2.0, 4.0]
    assert trace(x=np.float32([3.0, 4.0]))["n"] == 3
    with pytest.raises(TypeError, match=r"_1\(\) missing required arguments: \[.x"):
        trace()
    spec = "Spec(shape=(2,), dtype=disttrain.float32, name=None)"
    assert trace.described().splitlines() == [
        "Input Parameters:", f"  x (POSITIONAL_OR_KEYWORD): {spec}",
        "  n (POSITIONAL_OR_KEYWORD): Literal[3]", "Output Type:",
        f"  Dict[[['out', List[{spec}]], ['n', Literal[3]]]]",
        "Captures:", "  None",
    ]  # fmt: skip


def test_functions_may_run_eagerly():
    runs = []
    traced = Function(lambda x: runs.append(1) or x)
    run_eagerly(True)
    try:
        traced(1)
        traced(1)
    finally:
        run_eagerly(False)
    assert len(runs) == 2 and traced.count == 0


def test_calls_with_tensors_alone_find_their_trace_at_once():
    traced = Function(lambda x, y=None: add(x, x if y is None else y))
    for _ in range(3):
        assert traced(dt.ones(2)).tolist() == [2.0, 2.0]
        assert traced(dt.ones(2), dt.zeros(2)).tolist() == [1.0, 1.0]
        assert traced(dt.ones(2, dtype=dt.float64)).dtype is dt.float64
        assert traced(y=dt.zeros(1), x=dt.ones(1)).tolist() == [1.0]
    assert traced.count == 4
    relaxed = Function(lambda x: add(x, x), relaxed=True)
    for n in (1, 2, 3, 2, 3):
        assert len(relaxed(dt.ones(n))) == n
    rows = Function(lambda *xs: add(xs[0], xs[-1]))
    assert [rows(*[dt.ones(1)] * n).tolist() for n in (1, 2, 1, 2)] == [[2.0]] * 4
