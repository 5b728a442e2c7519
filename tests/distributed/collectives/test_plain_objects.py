"""Objects of classes as plain values, and back, without any code of theirs."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import uuid
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.collectives import plain_objects as plain
from disttrain.errors import CommError


class Point:
    def __init__(self, x: int) -> None:
        raise AssertionError("no code of a class is run")


class Slotted(list):
    __slots__ = ("a", "b")


class Hooked:
    def __reduce__(self):
        raise AssertionError("no code of a class is run")


class Frozen(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict([("b", 1), ("a", 2)]), Counter("aab"), deque([1, 2], 3), slice(1, None, 2),
        range(3, 9, 2), dt.Size([2, 3]), dt.device("cpu"), dt.bfloat16, np.dtype("float32"),
        defaultdict(list, {1: [2]}), defaultdict(None, {1: 2}), datetime.timedelta(1, 2, 3),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.date(2020, 1, 2),
        datetime.time(1, 2), decimal.Decimal("1.10"), fractions.Fraction(1, 3),
        uuid.UUID(int=5), pathlib.PurePosixPath("a/b"), pathlib.PosixPath("/x"),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_known_kinds_come_back_as_they_were(value):
    name, inner = plain.known(value)
    back = plain.make_known(name, inner)
    assert back == value and type(back) is type(value)
    for more in ("maxlen", "default_factory"):
        assert getattr(back, more, None) == getattr(value, more, None)


def test_other_kinds_and_factories_of_ones_own_are_not_known():
    assert plain.known(object()) is None
    assert plain.known(defaultdict(lambda: 1)) is None
    with pytest.raises(ValueError, match="no kind 'Point'"):
        plain.make_known("Point", [])


def test_a_device_that_no_sender_has_written_is_a_bad_value():
    with pytest.raises(ValueError, match="warp"):
        plain.make_known("device", "warp")


@pytest.mark.parametrize("kind", [Hooked, ValueError, type, np.ndarray])
def test_classes_that_say_themselves_how_they_are_saved_are_not_plain(kind):
    assert not plain.is_plain(kind)
    with pytest.raises(ValueError, match="not a class of plain data"):
        plain.make(kind, None, {})


def test_an_object_is_made_without_its_constructor():
    made = plain.make(Point, None, {"x": 3})
    assert type(made) is Point and plain.attributes(made) == {"x": 3}
    assert plain.held(made) is None


def test_a_kind_of_list_keeps_what_it_holds_and_its_slots():
    source = Slotted([1, 2])
    source.a = "A"
    assert plain.attributes(source) == {"a": "A"} and plain.held(source) == [1, 2]
    made = plain.make(Slotted, plain.held(source), plain.attributes(source))
    assert made == [1, 2] and made.a == "A" and not hasattr(made, "b")


def test_a_kind_of_number_keeps_its_value():
    made = plain.make(Frozen, plain.held(Frozen(7)), {})
    assert made == 7 and type(made) is Frozen


def test_classes_are_found_by_name_or_the_error_names_what_to_import():
    assert plain.find_class(plain.name_of(Point)) is Point

    class Local:
        pass

    assert plain.name_of(Local) is None
    with pytest.raises(CommError, match=r"class nowhere\.Thing.*Import its module on every rank"):
        plain.find_class("nowhere:Thing")
    with pytest.raises(CommError, match="does not know"):
        plain.find_class(f"{__name__}:pytest")  # there, but no class
