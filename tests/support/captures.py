"""Compiled functions over several calls, held against the functions themselves."""

from __future__ import annotations

import disttrain as dt


def captures(fn, *calls, dynamic=None):
    """How often a function is captured over calls that give what they give eagerly."""
    run = dt.compile(fn, dynamic=dynamic)
    for args in calls:
        expected = fn(*[a.clone() for a in args])
        found = run(*args)
        assert found.array.tobytes() == expected.array.tobytes()
        assert found.array.strides == expected.array.strides
    return len(run.reasons), run.explain()


def inputs(*sizes):
    return [(dt.randn(*size),) for size in sizes]
