"""Branches and loops inside of graphs, by hand and by AutoGraph."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compile.autograph import Statements
from disttrain.graphs import CURRENT, Function, Spec, control


def do(kind, call, *inputs):
    return CURRENT.get().record(kind, call, list(inputs))


def test_branches():
    def fn(flag, x):
        return control.cond("If", flag, lambda: do("Neg", dt.neg, x), lambda: do("Exp", dt.exp, x))

    traced = Function(fn)
    x = dt.tensor(1.0)
    assert float(traced(dt.tensor(True), x)) == -1.0
    assert float(traced(dt.tensor(False), x)) == float(dt.exp(x))
    assert traced.count == 1


def test_branches_of_other_types_are_refused():
    def fn(flag, x):
        return control.cond("If", flag, lambda: x, lambda: do("Long", lambda v: v.long(), x))

    with pytest.raises(TypeError, match="same types: float32 and int64"):
        Function(fn)(dt.tensor(True), dt.tensor(1.0))


def test_loops_and_their_limit():
    def fn(x, limit):
        return control.while_loop(
            lambda v: do("Less", lambda a: a < 100, v), lambda v: [do("Twice", lambda a: a * 2, v)],
            [x], limit,
        )  # fmt: skip

    assert [int(v) for v in Function(fn)(dt.tensor(3), None)] == [192]
    assert [int(v) for v in Function(fn)(dt.tensor(3), 2)] == [12]


def test_gradients_go_through_loops():
    def fn(rows, start):
        (out,) = control.for_loop(rows, lambda row, s: [do("Mul", dt.mul, row, s)], [start])
        return out

    rows = dt.tensor([2.0, 3.0, 4.0], requires_grad=True)
    out = Function(fn)(rows, dt.tensor(1.0))
    out.backward()
    assert rows.grad.tolist() == [12.0, 8.0, 6.0]


class Own(control.Staging):
    def logical(self, word, *values):
        return do(word, getattr(dt, f"logical_{word}"), *values)


def test_statements_are_operations():
    less = lambda x, n: do("Less", lambda v: v < n, x)

    def fn(x, rows):
        if less(x, 0):
            x = do("Neg", dt.neg, x)
        for row in rows:
            if not less(row, 5):
                break
            x = do("Add", dt.add, x, row)
        while less(x, 10):
            x = do("Twice", lambda v: v * 2, x)
        return x

    traced = Function(fn, statements=Statements(Own()))
    assert int(traced(dt.tensor(-1), dt.tensor([1, 2, 7, 1]))) == 16
    assert int(traced(dt.tensor(20), dt.tensor([9, 1, 1, 1]))) == 20
    assert traced.count == 1


def test_variables_that_a_statement_alone_sets():
    def fn(flag, rows, read):
        if flag:
            made = do("Neg", dt.neg, rows)
        for row in rows:
            last = do("Twice", lambda v: v * 2, row)
        return (last, made) if read else last

    traced = Function(fn, statements=Statements(Own()))
    assert int(traced(dt.tensor(True), dt.tensor([1, 4]), False)) == 8
    with pytest.raises(ValueError, match="'made' must also be initialized in the else branch"):
        traced(dt.tensor(True), dt.tensor([1, 4]), True)


def test_pythons_functions_of_values():
    def fn(x, n):
        total = dt.tensor(0)
        for i in range(n):
            total = do("Add", dt.add, total, i)
        rows = [do("Mul", dt.mul, row, dt.tensor(i)) for i, row in enumerate(x)]
        return total, rows[1], int(rows[0]), float(n), len(x), len([1, 2])

    traced = Function(fn, statements=Statements(Own()))
    total, row, whole, real, size, two = traced(dt.tensor([1.5, 2.5]), dt.tensor(4))
    assert (total.tolist(), row.tolist(), whole.tolist(), real.tolist()) == (6, 2.5, 0, 4.0)
    assert (whole.dtype, real.dtype, size, two) == (dt.int32, dt.float32, 2, 2)
    open_ = Function(lambda x: len(x), signature=[Spec([None], dt.float32)],
                     statements=Statements(Own()))  # fmt: skip
    assert open_(dt.ones(3)).tolist() == 3
