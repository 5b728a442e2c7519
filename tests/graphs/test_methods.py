"""Traced methods belong to their object: copies and equals have their own, and none outlives it."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import disttrain as dt
from disttrain.graphs import Function
from disttrain.graphs.methods import Methods, methods_of
from disttrain.graphs.operations import Operations

mul = Operations().binary("mul", "Mul", dt.mul)


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    @Function
    def run(self, x):
        return mul(x, self.factor)


class Slotted:
    __slots__ = ("__weakref__", "factor")

    def __init__(self, factor):
        self.factor = factor

    @Function
    def run(self, x):
        return mul(x, self.factor)


class Nothing:
    __slots__ = ()

    @Function
    def run(self, x):
        return mul(x, 2.0)


def test_equal_objects_and_copies_have_their_own():
    one, x = Scale(2.0), dt.ones(2)
    assert one.run(x).tolist() == [2, 2]
    for other in (Scale(3.0), copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        other.factor = 3.0
        assert other.run(x).tolist() == [3, 3]
    assert one.run is one.run
    assert one.run(x).tolist() == [2, 2]


def test_none_outlives_its_object():
    one = Scale(2.0)
    one.run(dt.ones(2))
    there = weakref.ref(one)
    del one
    gc.collect()
    assert there() is None


def test_objects_without_attributes():
    one, other = Slotted(2.0), Slotted(3.0)
    assert [float(s.run(dt.tensor(1.0))) for s in (one, other, one)] == [2, 3, 2]
    assert float(Nothing().run(dt.tensor(1.0))) == 2
    assert methods_of(Nothing()) == {}


def test_a_copied_table_is_another_ones():
    table = copy.deepcopy(Methods("somebody"))
    assert table.owner is None
    assert table.known == {}
