"""Classes of tensors over arrays: what is asked for, joined, and taken apart again."""

from __future__ import annotations

import numpy as np

from disttrain.backends.array_kinds import ArrayKind
from disttrain.core.classes import class_for, joined, plain_class


class Base:
    """As a Tensor."""


class Own(Base):
    """As a Parameter."""


class Wanted(Base):
    """As a DTensor."""


def array(kind: type | None) -> ArrayKind:
    found = object.__new__(type("Kind", (ArrayKind,), {"tensor_class": kind}))
    return found


def test_plain_arrays_leave_the_class():
    assert class_for(np.zeros(1), Own) is Own
    assert class_for(array(None), Own) is Own


def test_the_narrower_class_is_taken():
    assert class_for(array(Wanted), Base) is Wanted
    assert class_for(array(Base), Own) is Own


def test_classes_apart_are_joined_once():
    both = class_for(array(Wanted), Own)
    assert issubclass(both, Own) and issubclass(both, Wanted)
    assert both is joined(Own, Wanted) and both.__name__ == "Own"


def test_what_was_joined_is_taken_apart():
    assert plain_class(joined(Own, Wanted)) is Own
    assert class_for(np.zeros(1), joined(Own, Wanted)) is Own
    assert plain_class(type("Sub", (joined(Own, Wanted),), {})).__name__ == "Sub"
