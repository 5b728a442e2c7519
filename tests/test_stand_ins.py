"""Functions that stand in for others, in any order of coming and going."""

from __future__ import annotations

import itertools

import pytest

from disttrain.stand_ins import StandIns


class Thing:
    def call(self) -> str:
        """Its own."""
        return "own"


def naming(text):
    return lambda own: lambda self: f"{text}({own(self)})"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_what_comes_last_stands_in_front_and_each_may_go_first(order):
    own, there = Thing.call, {}
    for name in "abc":
        there[name] = StandIns()
        there[name].put(Thing, "call", naming(name))
    assert Thing().call() == "c(b(a(own)))" and Thing.call.__doc__ == "Its own."
    left = ["a", "b", "c"]
    for name in order:
        there[name].take_back()
        left.remove(name)
        expected = "own"
        for other in left:
            expected = f"{other}({expected})"
        assert Thing().call() == expected
    assert Thing.call is own


def test_it_is_set_up_for_the_first_of_its_users_and_taken_back_with_the_last():
    own = Thing.call
    both = StandIns(lambda places: places.put(Thing, "call", naming("x")))
    both.join()
    both.join()
    assert Thing().call() == "x(own)"
    both.leave()
    assert Thing().call() == "x(own)"
    both.leave()
    assert Thing.call is own
    both.join()
    assert Thing().call() == "x(own)"
    both.leave()
    assert Thing.call is own


def test_what_a_program_has_put_over_it_stays(monkeypatch):
    places = StandIns()
    places.put(Thing, "call", naming("x"))
    mine = lambda self: "mine"
    monkeypatch.setattr(Thing, "call", mine)
    places.take_back()
    assert Thing.call is mine


def test_an_attribute_that_is_inherited_is_none_of_its_own():
    class Below(Thing):
        pass

    with pytest.raises(KeyError):
        StandIns().put(Below, "call", naming("x"))


def test_functions_of_modules_and_of_objects():
    thing = Thing()
    thing.made = lambda self: "made"
    places = StandIns()
    places.put(thing, "made", naming("x"))
    assert thing.made(None) == "x(made)"
    places.take_back()
    assert thing.made(None) == "made"
