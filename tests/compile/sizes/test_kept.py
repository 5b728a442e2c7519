"""A symbolic run leaves nothing in what Python keeps; it stands for no program that keeps sizes."""

from __future__ import annotations

import functools
import types
from collections import deque

import pytest

import disttrain as dt
from disttrain.compile.guards.holders import CELL, DICT, FACT, NAMES, OBJECT, SEQUENCE, Holder
from disttrain.compile.guards.readers import members, values
from disttrain.compile.sizes.kept import Kept


class Slots:
    __slots__ = ("a", "b")


def _cell(x: int) -> types.CellType:
    return (lambda: x).__closure__[0]  # type: ignore[index]


def test_everything_holds_again_what_it_held():
    class Own:
        n = 1

    d, space, owner, line, both, some = {"a": 1}, {"x": 1}, {"k": 2}, [1, 2], deque([1]), {3}
    cell, slots = _cell(4), Slots()
    slots.a = 5
    holders = [
        Holder(DICT, d, "d"), Holder(NAMES, space, "space", ("x", "y")),
        Holder(OBJECT, owner, "owner", ("k",)), Holder(SEQUENCE, line, "line"),
        Holder(SEQUENCE, both, "both"), Holder(CELL, cell, "cell"),
        Holder(FACT, some, "some", reader=functools.partial(members, some)),
        Holder(FACT, slots, "slots", ("a", "b"), functools.partial(values, slots, ("a", "b"))),
        Holder(OBJECT, vars(Own), "Own", ("n",)),
    ]  # fmt: skip
    kept = Kept(holders)
    with kept:
        d.update(a=2, b=3)
        space.update(x=2, y=3)
        owner.update(k=3, more=1)
        line[:] = [7]
        both.append(2)
        cell.cell_contents = 9
        some.add(4)
        slots.a, slots.b, Own.n = 6, 7, 8
    assert (d, space, owner, line, both, some) == (
        {"a": 1}, {"x": 1}, {"k": 2}, [1, 2], deque([1]), {3}
    )  # fmt: skip
    assert (cell.cell_contents, slots.a, hasattr(slots, "b"), Own.n) == (4, 5, False, 1)
    assert kept.changed == "d has other entries"


def test_an_equal_number_is_no_change():
    d = {"a": 2.5}
    was = d["a"]
    kept = Kept([Holder(DICT, d, "d")])
    with kept:
        d["a"] = float("2.5")
    assert kept.changed is None and d["a"] is was


class State:
    n = k = 0
    last: tuple = ()


@pytest.mark.filterwarnings("ignore:.*captured anew for each")
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_program_that_keeps_sizes_keeps_numbers(dynamic):
    state, counts = State(), [0]

    def f(x, n):
        state.n, state.k, counts[0] = n, x.shape[0] * 2, len(x)
        return x * n + state.k

    run = dt.compile(f, dynamic=dynamic)
    for n, rows in [(3, 4), (5, 4), (5, 6), (7, 7), (9, 8), (3, 4), (11, 6), (9, 8)]:
        for _ in range(3):
            assert run(dt.ones(rows), n).tolist() == [float(n + rows * 2)] * rows
            assert (state.n, state.k, counts) == (n, rows * 2, [rows])
            assert {type(state.n), type(state.k), type(counts[0])} == {int}
    assert "it changes" in run.explain()


@pytest.mark.filterwarnings("ignore:.*captured anew for each")
def test_a_program_that_writes_sizes_into_an_argument_is_captured_for_each():
    def f(x, state, line):
        state["rows"], line[0] = len(x), x.shape[0]
        return x * 2

    run = dt.compile(f, dynamic=True)
    state, line = {"rows": 2}, [2]
    for rows in (2, 2, 3, 3, 4, 4, 2, 5, 5, 4, 7):
        run(dt.ones(rows), state, line)
        assert (state, line) == ({"rows": rows}, [rows])
    assert "it changes an argument" in run.explain()


@pytest.mark.filterwarnings("ignore:.*captured anew for each")
@pytest.mark.parametrize("typed", [False, True])
def test_caches_hold_no_symbols(typed):
    asked = []

    @functools.lru_cache(typed=typed)
    def doubled(n):
        asked.append(n)
        return n * 2 + 1

    run = dt.compile(lambda x, n, s: x * doubled(n) + doubled(s) + x.shape[0], dynamic=True)
    for n, s, rows in [(3, 0.5, 2), (4, 0.75, 3), (3, 0.75, 4), (4, 1.5, 5), (7, 1.5, 6)] * 2:
        for _ in range(2):
            assert run(dt.ones(rows), n, s).tolist() == [n * 2 + 1 + s * 2 + 1 + rows] * rows
    assert {type(n) for n in asked} == {int, float} and len(asked) == len({*asked})
    assert "looked up by it" in run.explain() and "s0 is size 0" in run.explain()
