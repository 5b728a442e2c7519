"""Converted functions do what the functions do, with values that are staged and ones that are
not."""

from __future__ import annotations

import functools

import pytest

from disttrain.compile.autograph import Border, Statements, converted, do_not_convert


class Word:
    """A value without a number: the expression that it stands for."""

    def __init__(self, text):
        self.text = text

    def __gt__(self, other):
        return Word(f"{self.text}>{other}")

    def __bool__(self):
        raise TypeError("a word has no number")


class Words(Border):
    def is_staged(self, value):
        return isinstance(value, Word)

    def is_sequence(self, value):
        return False

    def cond(self, test, yes, no):
        return Word(f"({test.text}?{yes()}:{no()})")

    def logical(self, word, *values):
        return Word(word + "".join(f" {getattr(v, 'text', v)}" for v in values))

    def check(self, test, message):
        raise AssertionError(f"{test.text}: {message}")


STATEMENTS = Statements(Words())


def loops(n):
    found = []
    for i in range(n):
        if i == 1:
            continue
        if i > 5:
            break
        found.append(i)
    total = 0
    while total < n:
        total += 2
        if total == 4:
            break
    else:
        total = -1
    return found, total


def branches(a, b=1, *rest, c=2, **more):
    """With every kind of argument."""
    if a > 0:
        if b > 0:
            return "both", rest
        d = c
    elif a == 0:
        d = more
    else:
        return None
    assert d is not None, "never"
    return d if not b else (d, 0 < c < 5, a and b, a or b)


def raising(a):
    try:
        if a:
            return 1
    finally:
        a = 2
    with open(__file__) as file:
        return len(file.readline()) > a


class Holder:
    def __init__(self):
        self.seen = 0

    def method(self, n):
        for _ in range(n):
            self.seen += 1
        return [x for x in range(self.seen) if x]


@pytest.mark.parametrize("n", range(8))
def test_python_goes_on_as_python(n):
    assert converted(loops, STATEMENTS)(n) == loops(n)


def test_arguments_and_returns():
    fn = converted(branches, STATEMENTS)
    for args in ((1,), (1, 0), (0, 1), (-1,), (1, 1, 2, 3), (1, 0, 9)):
        assert fn(*args, c=3, x=4) == branches(*args, c=3, x=4)
    assert fn.__doc__ == branches.__doc__
    assert [converted(raising, STATEMENTS)(a) for a in (0, 1)] == [raising(0), raising(1)]


def test_methods_closures_and_partials():
    held, other = Holder(), Holder()
    assert converted(held.method, STATEMENTS)(3) == other.method(3)
    assert held.seen == 3
    count = 0

    def inner(a):
        nonlocal count
        if a:
            count += 1
        return count

    fn = converted(inner, STATEMENTS)
    assert [fn(1), fn(0), inner(1)] == [1, 1, 2]
    assert STATEMENTS.call(functools.partial(branches, 1))(0) == branches(1, 0)
    assert converted(do_not_convert(lambda a: a), STATEMENTS)(1) == 1
    assert converted(len, STATEMENTS) is len


def test_staged_values_become_operations():
    def fn(a):
        return 1 if a > 2 and not a > 5 else 0

    assert converted(fn, STATEMENTS)(Word("x")).text == "(and x>2 not x>5?1:0)"

    def asserted(a):
        assert a > 1, "small"

    with pytest.raises(AssertionError, match="x>1: small"):
        converted(asserted, STATEMENTS)(Word("x"))

    def caller(a):
        return early(a)

    def early(a):
        if a > 10:
            return "big"
        return "small"

    assert converted(caller, STATEMENTS)(Word("x")).text == "(x>10?big:small)"


def test_undefined_variables_say_so():
    def fn(a):
        if a:
            b = 1
        return b + 1

    with pytest.raises((UnboundLocalError, TypeError)):
        converted(fn, STATEMENTS)(0)
