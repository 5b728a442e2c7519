"""Sums at the places of windows' largest values, against window by window in Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.largest import add_first, add_known

HOW = {
    "one axis": ((3,), (2,), (2,), (11,)),
    "apart": ((2, 2), (2, 2), (1, 1), (6, 8)),
    "overlapping": ((3, 2), (1, 2), (1, 3), (5, 9)),
    "three axes": ((2, 1, 3), (1, 2, 2), (1, 1, 1), (4, 3, 7)),
}


def windows(x, kernel, stride, dilation):
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    for at in itertools.product(*map(range, (*x.shape[:2], *counts))):
        first = [i * s for i, s in zip(at[2:], stride, strict=True)]
        taps = itertools.product(*map(range, kernel))
        yield (
            at,
            [
                (*at[:2], *(f + t * d for f, t, d in zip(first, tap, dilation, strict=True)))
                for tap in taps
            ],
        )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_first_of_equal_places_is_added_to(how, kind):
    *ways, size = HOW[how]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (2, 3, *size)).astype(kind)
    found = list(windows(x, *ways))
    shape = tuple(n + 1 for n in found[-1][0])
    best, number = np.empty(shape, kind), np.empty(shape, np.uint8)
    g, wanted = rng.normal(size=shape).astype(kind), np.zeros(x.shape, kind)
    for at, places in found:
        values = [x[place] for place in places]
        best[at], number[at] = max(values), int(np.argmax(values))
        wanted[places[number[at]]] += g[at]
    number[0, 0] = 255  # no place
    to = np.zeros(x.shape, kind)
    if not add_first(to, g, x, best, *ways):
        pytest.skip("no code can be made here")
    assert to.tobytes() == wanted.tobytes()
    known = np.zeros(x.shape, kind)
    assert add_known(known, g, number, *ways)
    wanted[0, 0] = 0
    assert known.tobytes() == wanted.tobytes()


def test_threads_and_layouts_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 3, (4, 40, 40, 8)).astype("f").transpose(0, 3, 1, 2)
    best = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((-1, -2))
    g, found = rng.normal(size=best.shape).astype("f"), []
    for count in (1, 3):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        for given in (x, np.ascontiguousarray(x)):
            to = np.zeros(given.shape, "f")
            add_first(to, g, given, best, (2, 2), (1, 1), (1, 1))
            found.append(to.tobytes())
    assert len(set(found)) == 1


def test_what_has_no_code_is_left():
    a = np.zeros((1, 1, 4), np.float16)
    assert not add_first(a, a, a, a, (1,), (1,), (1,))
    wide = np.zeros((1, 1, 5000))
    assert not add_first(wide, wide[..., :1], wide, wide[..., :1], (5000,), (1,), (1,))
    assert not add_known(wide, wide[..., :0], wide[..., :0].astype(np.uint8), (2,), (1,), (1,))


@pytest.mark.parametrize("count", [32, 33, 100])
def test_windows_with_many_places(count):
    x = np.random.default_rng(count).integers(0, 9, (2, 3, 2 * count)).astype("f4")
    best = x.reshape(2, 3, 2, count).max(-1)
    to, g = np.zeros_like(x), np.ones_like(best)
    if add_first(to, g, x, best, (count,), (count,), (1,)):
        first = x.reshape(2, 3, 2, count).argmax(-1)
        assert np.array_equal(to.reshape(2, 3, 2, count).argmax(-1), first)
        assert to.sum() == g.size
