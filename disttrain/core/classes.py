"""Which class a Tensor over an array has, where the array is of a kind of its own; its numbers."""

from __future__ import annotations

import functools
from typing import Any

from .. import context
from ..backends.array_kinds import ArrayKind


def class_for(array: object, like: type) -> type:
    """The class of a Tensor over ``array``: ``like``, or what the kind of array wants for it."""
    kind = array.tensor_class if isinstance(array, ArrayKind) else None
    if kind is None:
        return plain_class(like)
    return (
        kind if issubclass(kind, like) else like if issubclass(like, kind) else joined(like, kind)
    )


def plain_class(kind: type) -> type:
    """What ``joined`` made ``kind`` of, for arrays that ask for no class of their own."""
    return kind.__dict__.get("joined_from", (kind,))[0]


@functools.cache
def joined(own: type, kind: type) -> type:
    """A class that is both: what ``own`` is for, over the arrays of ``kind``."""
    body = {"joined_from": (own, kind), "__module__": own.__module__, "__doc__": own.__doc__}
    return type(own.__name__, (own, kind), body)


def values_of(t: Any) -> Any:
    """The array with all numbers of ``t``, for functions that look at them. Of a distributed one
    every rank has to ask."""
    array = t.array
    for interp in context.thread.stack:  # their numbers leave for Python
        if interp.dynamic:
            interp.on_read(t)
    return array.whole() if isinstance(array, ArrayKind) else array
