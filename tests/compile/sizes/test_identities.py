"""Which questions of identity may be of numbers, by the code that asks."""

from __future__ import annotations

import functools
import operator
import warnings

import pytest

import disttrain as dt
from disttrain.compile.sizes.identities import asked_at

SENTINEL = object()
same, three = operator.is_, functools.partial(operator.is_, 3)


class Has:
    """A function that asks so, as an attribute."""

    same = staticmethod(operator.is_)


ASKS = ["n is 3", "3 is not n", "n is m", "n.a is m.b", "n.shape[0] is 4", "n(2, 3) is m",
        "len(n) is 4", "operator.is_(n, m)", "n is m.b.c", "same(n, 3)", "three(n)",
        "any(map(same, (n,), (3,)))", "Has.same(n, m)", "id(n) == id(3)"]  # fmt: skip
DOES_NOT = ["x is None", "x is not None", "n is SENTINEL", "SENTINEL is n", "type(n) is int",
            "int is type(n)", "type(n) is type(m)", "n.__class__ is m.__class__",
            "n.k is dt.float32", "n.shape[0] is None", "n(2, 3) is None", "None is n(3)",
            "n is True", "n is 'a'", "n == m"]  # fmt: skip


def made(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"lambda n, m=0, x=0: {text}", globals())


@pytest.mark.parametrize("text", ASKS)
def test_questions_that_may_be_of_numbers(text):
    found = asked_at([(made(text).__code__, globals())])
    assert found is not None and found.endswith("<string>:1 in <lambda>")


@pytest.mark.parametrize("text", DOES_NOT)
def test_questions_that_are_of_other_things(text):
    assert asked_at([(made(text).__code__, globals())]) is None


def test_a_program_that_asks_so_of_a_size_is_captured_for_each():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn = eval("lambda x: x * 2 if x.shape[0] is 9 else x * 3")
    run = dt.compile(fn)
    with pytest.warns(UserWarning, match="asks at <string>:1 in <lambda> whether two"):
        for size in (4, 5, 6, 9, 10, 9):
            assert run(dt.ones(size)).tolist() == [2.0 if size == 9 else 3.0] * size
    assert "asks at <string>:1 in <lambda> whether two things are one" in run.explain()


def test_types_of_sizes_decide_as_they_are():
    def fn(x):
        return x * 2 if type(x.shape[0]) is int and x.shape[0] > 6 else x * 3

    run = dt.compile(fn)
    for size in (4, 5, 6, 7, 8, 5):
        assert run(dt.ones(size)).tolist() == [2.0 if size > 6 else 3.0] * size
    assert len(run.graphs) == 3
