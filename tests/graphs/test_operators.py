"""Operators and subscripts of a program's own tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays.covers import Cover
from disttrain.graphs.operations import Operations
from disttrain.graphs.operators import Operators


class Value(Cover):
    __slots__ = ("_value",)
    shape = property(lambda self: self._value.shape)
    dtype = property(lambda self: self._value.dtype)


class Made(Operations):
    cover = staticmethod(Value.over)

    def is_tensor(self, value):
        return isinstance(value, Value)

    def tensor(self, value, hint=None):
        return value if isinstance(value, Value) else Value.over(super().tensor(value, hint))

    def plain(self, t):
        return t._value


made = Made()
operators = Operators(made)
operators.attach(
    Value,
    {w: (made.binary(w, w.title(), fn), None) for w, fn in (
        ("add", dt.add), ("sub", dt.sub), ("lt", dt.lt))},
    {"neg": made.unary("neg", "Neg", dt.neg)},
    made.binary("equal", "Equal", dt.eq), made.binary("not_equal", "NotEqual", dt.ne),
)  # fmt: skip
X = Value.over(dt.tensor([[1.0, 2.0], [3.0, 4.0]]))


def numbers(value):
    return value.numpy().tolist()


def test_operators():
    assert numbers(X + 1) == numbers(1 + X) == [[2.0, 3.0], [4.0, 5.0]]
    assert numbers(10 - X) == [[9.0, 8.0], [7.0, 6.0]]
    assert numbers(-X) == [[-1.0, -2.0], [-3.0, -4.0]]
    assert numbers(X < 3) == numbers(3 > X) == [[True, True], [False, False]]
    with pytest.raises(TypeError):
        X + None


def test_equality():
    assert numbers(X == 2.0) == [[False, True], [False, False]]
    assert numbers(X != X) == [[False, False], [False, False]]
    assert not (X == None) and (X != {})  # noqa: E711
    assert numbers(X == [1.0, 2.0, 3.0]) is False


def test_subscripts():
    assert numbers(X[1]) == [3.0, 4.0]
    assert numbers(X[..., ::-1]) == [[2.0, 1.0], [4.0, 3.0]]
    assert numbers(X[Value.over(dt.tensor(1)), 0]) == 3.0
    assert numbers(X[X == 4.0]) == [4.0]
    with pytest.raises(TypeError, match=r"scalar integer tensors are subscripts, got 1\.5"):
        X[1.5]
