"""One run, watched: which code runs, and what a replay could not repeat."""

from __future__ import annotations

import random
import sys
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.guards.watch import Watch


def watched(fn):
    with Watch(lambda number: None) as watch:
        fn()
    return watch


def helper():
    return 1


def test_code_of_the_program_is_noted():
    def fn():
        return helper() + sum(x for x in range(3))

    names = {code.co_name for code, _ in watched(fn).codes.values()}
    assert {"fn", "helper", "<genexpr>"} <= names and "ones" not in names


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda: time.time(), "time.time()"),
        (lambda: print(end=""), "print"),
        (lambda: random.random(), "random"),
        (lambda: np.random.rand(), "numpy"),  # noqa: NPY002
        (lambda: open("/dev/null").close(), "open"),
    ],
)
def test_what_a_replay_would_not_do_again_is_refused(fn, what):
    assert what in watched(fn).refused


def test_computing_is_not():
    def fn():
        return [dt.ones(2) * 2, sorted({3, 1}), "a".upper(), max(1, 2), {}.get("x"), abs(-1)]

    assert watched(fn).refused is None


def test_names_made_on_the_way_mean_everything():
    assert not watched(lambda: helper()).everything
    assert watched(lambda: vars(helper)).everything


def test_numbers_that_leave_are_told():
    seen = []
    with Watch(seen.append):
        dt.ones(1).item()
    assert seen == [1.0]


def test_nobody_else_may_profile():
    assert Watch.possible()
    sys.setprofile(lambda *a: None)
    try:
        assert not Watch.possible()
    finally:
        sys.setprofile(None)
    assert Watch.possible()
