"""A program's functions as operations, with gradients of their own; calls and printing."""

from __future__ import annotations

import io

import pytest

import disttrain as dt
from disttrain.graphs import Function, Spec
from disttrain.graphs.operations import Operations
from disttrain.graphs.programs import called, explaining, recomputed, show

made = Operations()
double = made.unary("double", "Double", lambda x: x * 2)


def graph_of(fn, *args):
    return [op.type for op in Function(fn).trace_of(*args).graph.operations]


def test_gradients_of_its_own():
    odd = explaining(made, lambda x: ({"out": x * 2}, lambda g: g * 5))
    x = dt.tensor([1.0], requires_grad=True)
    for fn in (odd, Function(odd)):
        x.grad = None
        fn(x)["out"].sum().backward()
        assert x.grad.tolist() == [5.0]
    assert graph_of(odd, dt.ones(1)) == ["Placeholder", "IdentityN", "Identity"]
    with pytest.raises(ZeroDivisionError):
        explaining(made, lambda x: 1 / 0)(x)


def test_values_are_computed_again():
    runs = []

    def block(x):
        runs.append(1)
        return [dt.sin(x) * x]

    x = dt.tensor([1.0, 2.0], requires_grad=True)
    recomputed(made, block)(x)[0].sum().backward()
    found, x.grad = x.grad, None
    block(x)[0].sum().backward()
    assert found.tolist() == x.grad.tolist()
    assert len(runs) == 3


def test_calls_at_every_run():
    seen = []
    fn = Function(lambda x: called(made, lambda v: seen.append(v.tolist()) or v + 1, [x],
                                   [Spec((), dt.float32)], True))  # fmt: skip
    assert [fn(dt.tensor(n)).tolist() for n in (1.0, 2.0)] == [2.0, 3.0]
    assert seen == [1.0, 2.0]
    assert called(made, lambda v: [v, 2.0], [1.0], [Spec((), dt.float32)] * 2)[1] == 2.0


def test_printing_at_every_run():
    stream = io.StringIO()
    fn = Function(lambda x: show(made, ["x", {"a": x}], stream=stream) or x)
    fn(dt.tensor([1.5] * 8))
    fn(dt.tensor([2.5] * 8))
    assert stream.getvalue().splitlines() == [
        "x {'a': [1.5 1.5 1.5 ... 1.5 1.5 1.5]}", "x {'a': [2.5 2.5 2.5 ... 2.5 2.5 2.5]}"
    ]  # fmt: skip
    assert double(dt.tensor(1)).tolist() == 2


def test_the_standard_streams(capsys):
    show(made, [dt.tensor(3), "a"], sep="-", end="!")
    assert capsys.readouterr().out == "3-a!"
