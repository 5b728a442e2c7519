"""Choosers of types: who sees operations, within which block."""

from __future__ import annotations

import pytest

from disttrain.context import thread
from disttrain.core.types.casting import casting, computes_in


class Chooser:
    """Doubles what functions give, and says how they were to compute."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def cast(self, primitive, args):
        return args

    def around(self, how, fn, args, kwargs):
        self.seen.append(how)
        return 2 * fn(*args, **kwargs)


@computes_in("full")
def add(a, b=1):
    """The sum."""
    return a + b


def test_without_a_chooser_nothing_is_changed():
    assert add(1, b=2) == 3
    assert add.__doc__ == "The sum."


def test_a_chooser_sees_the_function_as_one():
    chooser = Chooser()
    with casting(chooser):
        assert add(1, b=2) == 6
        with casting(None):
            assert add(1) == 2
        assert thread.autocast is chooser
    assert chooser.seen == ["full"]
    assert add(1) == 2


def test_what_was_before_comes_back_after_an_error():
    before = thread.autocast, thread.autocast_depth
    with pytest.raises(KeyError), casting(Chooser()):
        raise KeyError
    assert (thread.autocast, thread.autocast_depth) == before
