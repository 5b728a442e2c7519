"""What becomes of numbers that code reads, told by the code."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from disttrain.compile.numbers import Check, uses_of

LIMIT = 3
FOUND: list = []


class Cell:
    """Has a number, and looks at who asks for it. (The functions here are whole programs.)"""

    def item(self):
        FOUND.append(uses_of(sys._getframe(1), True))
        return 1.0

    def __float__(self):
        FOUND.append(uses_of(sys._getframe(1), True))
        return 1.0


class Block:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def returned(t):
    return t.item()


def returned_in_parts(t):
    low = t.item()
    for i in range(3):
        last = i
    return {"a": low, "b": [last, 3]}, low


def returned_from_a_block(t):
    with Block():
        return t.item() if LIMIT else 0


def as_float(t):
    x = float(t)
    y = x if LIMIT else None
    return [x, (y,)]


def put_into_a_table(t):
    out = {}
    out["low"] = t.item()
    out["high"] = 3
    return out


def put_into_a_list(t):
    out = []
    out.append(t.item())
    return {"all": out}


@pytest.mark.parametrize(
    "program",
    [
        returned,
        returned_in_parts,
        returned_from_a_block,
        as_float,
        put_into_a_table,
        put_into_a_list,
    ],
)
def test_numbers_that_are_handed_back_decide_nothing(program):
    FOUND.clear()
    program(Cell())
    assert FOUND == [((), True)]


def compared(t, tol=0.25):
    return 1 if t.item() > tol else 2


def compared_with_a_global(t):
    while t.item() < LIMIT - 3:
        pass


def looked_at_twice(t):
    low = t.item()
    return None if not math.isfinite(low) or low > 8 else low


def asked_whether_nan(t):
    return "nan" if np.isnan(float(t)) else ""


def dropped(t):
    t.item()


def test_tests_of_a_number_are_told():
    expected = {
        compared: {">": 0.25},
        looked_at_twice: {">": 8, "isfinite": None},
        asked_whether_nan: {"isnan": None},
        dropped: {},
    }
    for program, tests in expected.items():
        FOUND.clear()
        program(Cell())
        (uses,) = FOUND
        names = {"gt": ">"}
        found = {names.get(t.how.__name__, t.how.__name__): t.other for t in uses.tests}
        assert found == tests and uses.returned == (program is looked_at_twice)


def counted(t):
    return t.item() * 2


def a_key(t):
    return {t.item(): 1}


def a_closure(t):
    low = t.item()
    return [v for v in range(3) if v < low] or (lambda: low)


def an_argument(t):
    return max(t.item(), 3)


def text(t):
    return f"{t.item()}"


def kept(t):
    Cell.last = t.item()


def a_moving_limit(t):
    best = 3.0
    best = best + 1
    low = t.item()
    return low if low > best else 1


def sorted_by_it(t):
    return sorted([t, t], key=Cell.item)


def looked_up_by_name(t):
    low = t.item()
    return low and locals()


def given_on(t):
    yield t.item()


def a_chain(t):
    return 0 < t.item() < 3


def put_into_two_names(t):
    out = same = []
    out.append(t.item())
    return same[0] + 1


def put_into_an_argument(t, out=[]):  # noqa: B006
    out.append(t.item())
    return out.pop()


def put_and_looked_at(t):
    out = {}
    out["low"] = t.item()
    return 1 if out["low"] > 3 else 2


def put_and_renamed(t):
    out = {}
    same = {"out": out}
    out["low"] = t.item()
    return same["out"]["low"] * 2


@pytest.mark.parametrize(
    "program",
    [put_into_two_names, put_into_an_argument, put_and_looked_at, put_and_renamed,
     counted, a_key, a_closure, an_argument, text, kept, a_moving_limit, sorted_by_it,
     looked_up_by_name, given_on, a_chain, compared_with_a_global],
)  # fmt: skip
def test_other_numbers_may_be_used_for_anything(program):
    FOUND.clear()
    list(program(Cell()) or ()) if program is given_on else program(Cell())
    assert FOUND and not any(FOUND)


def test_a_function_inside_hands_back_to_who_knows_whom():
    class Inner(Cell):
        def item(self):
            FOUND.append(uses_of(sys._getframe(1), False))
            return 1.0

    FOUND.clear()
    assert returned(Inner()) == 1.0 and compared(Inner()) == 1
    assert FOUND == [None, ((Check(FOUND[1].tests[0].how, 0.25),), False)]
