"""Tensors written one by one, in loops of traced functions, too."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import DimError
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.sequences import TensorSequence
from disttrain.graphs.structured import Structured


def test_written_and_read():
    s = TensorSequence(dt.float32, 2)
    s.write(0, [1.0, 2.0])
    s.write(1, dt.tensor([3.0, 4.0]))
    assert s.stack().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert s.concat().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (s.read(1).tolist(), s.gather([1]).tolist()) == ([3.0, 4.0], [[3.0, 4.0]])
    assert s.size().tolist() == 2
    with pytest.raises(DimError):
        s.write(2, [0.0, 0.0])
    assert TensorSequence(dt.float32).unstack(dt.ones(3, 1)).size().tolist() == 3


def test_it_grows():
    s = TensorSequence(dt.int64, dynamic_size=True).write(2, 5)
    assert s.stack().tolist() == [0, 0, 5]


def test_loops():
    flow = Structured()

    def add(a, b):
        return CURRENT.get().record("Add", dt.add, [a, b])

    def squares(n):
        s = TensorSequence(dt.int64, dynamic_size=True)
        less = lambda i, _: CURRENT.get().record("Less", dt.lt, [i, n])
        body = lambda i, s: (add(i, dt.tensor(1)), s.write(i, add(i, i)))
        _, s = flow.while_loop(less, body, (dt.tensor(0), s))
        return s.stack()

    assert Function(squares)(dt.tensor(4)).tolist() == [0, 2, 4, 6]
