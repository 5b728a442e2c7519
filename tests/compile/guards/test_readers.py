"""What holders read: the same objects as long as nothing changed."""

from __future__ import annotations

import functools

import numpy as np

import disttrain as dt
from disttrain.compile.guards import readers
from disttrain.compile.guards.holders import MISSING


def test_arrays_are_the_same_object_as_long_as_they_are_equal():
    x = np.arange(3)
    parts = readers.ArrayParts(x)
    first = parts()
    assert parts() is first
    x[0] = 0
    assert parts() is first  # written, with what it was
    x[0] = 9
    assert parts() is not first and parts() != first


def test_functions_and_classes_by_what_can_be_replaced():
    def f(a, b=1, *, c=2):
        return a

    before = readers.function_parts(f)
    f.__defaults__ = (3,)
    assert readers.function_parts(f) != before
    objects = [dt.nn.ReLU()]
    kinds = readers.Classes(objects)
    assert kinds()[0] is dt.nn.ReLU and kinds()[1] is vars(objects[0])
    before = kinds()
    objects[0].__class__ = dt.nn.GELU
    assert kinds()[0] is dt.nn.GELU
    objects[0].__dict__ = dict(vars(objects[0]))
    assert kinds()[1] is not before[1]


def test_sets_are_read_in_one_order():
    assert readers.members({"b", "a", 1}) == readers.members({1, "a", "b"})


def test_attributes_that_are_not_there_are_missing():
    assert readers.values(types_like(a=1), ("a", "b")) == (1, MISSING)


def types_like(**names):
    return type("Box", (), names)()


def test_caches_by_what_they_keep():
    @functools.lru_cache
    def f(x):
        return [x]

    before = readers.cached(f)
    kept = f(1)
    assert readers.cached(f) != before and any(part is kept for part in readers.cached(f))


def test_names_are_tried_once_on_each_tensor():
    class Counting(dt.Tensor):
        asked = 0

        def __getattr__(self, name):
            type(self).asked += 1
            raise AttributeError(name)

    x, tried = dt.ones(2), readers.Tried()
    x.mark = "here"
    tried.learn({"mark", "other", "shape", "array"})
    assert tried.on(x) == [("mark", "here")]
    x.other = 1  # while a look lasts, tensors do not change
    assert tried.on(x) == [("mark", "here")]
    x.third = 3
    tried.learn({"third", "mark"})
    assert tried.on(x) == [("mark", "here"), ("third", 3)] and tried.on(dt.ones(1)) == []
