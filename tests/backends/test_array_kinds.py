"""What every kind of array has unless it says otherwise, and which of several answers."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.array_kinds import ArrayKind, heaviest


class Part(ArrayKind):
    """A kind with a shape and a type, and nothing of its own."""

    def __init__(self, shape=(2, 3), dtype="float32"):
        self.shape, self.dtype = shape, np.dtype(dtype)


class Heavy(Part):
    weight = 5


def test_sizes_follow_from_shape_and_type():
    for shape in ((2, 3), (), (4, 0)):
        a, want = Part(shape, "float64"), np.zeros(shape)
        for name in ("ndim", "size", "itemsize", "nbytes"):
            assert getattr(a, name) == getattr(want, name), (shape, name)


def test_numpy_s_functions_leave_it_alone():
    """An operator of numpy's array gives way, rather than to take it for an object."""
    with pytest.raises(TypeError):
        np.ones(2) + Part()
    with pytest.raises(TypeError):
        np.add(np.ones(2), Part())


def test_a_kind_without_memory_says_so():
    with pytest.raises(AttributeError, match="Part has no strides"):
        Part().strides
    assert not hasattr(Part(), "strides")


def test_the_heaviest_answers_and_of_equals_the_first():
    a, b, heavy = Part(), Part(), Heavy()
    assert heaviest([np.ones(1), a, 2.0, b]) is a
    assert heaviest([a, heavy, b]) is heavy
    with pytest.raises(AssertionError):
        heaviest([np.ones(1), None])


def test_what_a_kind_must_say_itself_is_not_made_up():
    a = Part()
    for ask in (
        a.ones,
        a.zeros,
        a.copy,
        lambda: a.run(None, (), {}),
        lambda: a.add_in_place(a),
        lambda: a.similar(None, (), None, False),
        lambda: a.drawn(None, {}),
        lambda: a.each_part(None),
    ):
        with pytest.raises(NotImplementedError):
            ask()


def test_a_kind_that_is_whole_here_gives_things_back_as_they_are():
    a, thing = Part(), object()
    assert a.whole() is a and a.owned(True) is a
    for same in (a.whole_of, a.taken_in, a.as_gradient, a.placed, a.everywhere, a.beside):
        assert same(thing) is thing
    assert a.over_parts(thing, "sum") is thing
    assert a.together([]) is None and a.here() is None and a.where() is None
    assert a.place == ("cpu", None)


def test_a_blank_array_meets_this_one():
    made = Part().blank((2,), np.dtype(np.int8))
    assert made.tolist() == [0, 0] and made.dtype == np.int8
