"""How an operation's dimensions belong together: what a primitive says about being cut in pieces.

A ``Layout`` names every dimension of every argument and result. Dimensions of one name are cut
together: where an argument's dimension of that name is cut, the operation may run on the pieces if
all arguments that have the name are cut alike (those that have it not are whole), and gives pieces
of the results that have the name, and partial results, to be reduced by ``reduce``, where they have
it not. ``None`` names a dimension that must be whole. Pure data: knows no mesh and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Layout:
    """``ins``: names per argument (None for what is no array); ``outs``: names per result.

    ``reduce``: what makes one of results over a name that they have not ("sum", "max" ...; None:
    such a name cannot be cut). ``linear``: which arguments may be partial sums, giving partial
    sums: sets of argument numbers, of which all must be partial together. ``even``: names that must
    be cut in equal pieces. ``whole``: names whose pieces may not be empty. ``shapes``: parameters
    that are the shape of result i. ``adapt``: params for pieces, ``adapt(params, sizes, starts)``
    given the length, and the beginning, of this rank's piece per name (names that are not cut are
    missing).
    """

    ins: tuple
    outs: tuple
    reduce: str | None = None
    linear: tuple[frozenset[int], ...] = ()
    even: frozenset = frozenset()
    whole: frozenset = frozenset()
    shapes: dict[str, int] = field(default_factory=dict)
    adapt: Callable[[dict, dict, dict], dict] | None = None


def shape_of(a: Any) -> tuple | None:
    """The shape of an array; None for what is none."""
    shape = getattr(a, "shape", None)
    return None if shape is None else tuple(shape)


_EACH = ("mul",)  # linear in each of two arguments
_FIRST = ("div",)
_TOGETHER = ("add", "sub", "neg", "copy")


def elementwise(name: str, args: Any) -> Layout:
    """The layout of an elementwise primitive: dimensions aligned from the last one, those of size 1
    whole where they are broadcast."""
    shapes = [shape_of(a) for a in args]
    ndim = max(len(s) for s in shapes if s is not None)
    full = [1] * ndim
    for s in shapes:
        for i, n in enumerate(s or (), ndim - len(s or ())):
            full[i] = n if full[i] == 1 else full[i]
    ins = []
    for s in shapes:
        if s is None:
            ins.append(None)
            continue
        lead = ndim - len(s)
        ins.append(tuple(i + lead if n == full[i + lead] else None for i, n in enumerate(s)))
    arrays = frozenset(i for i, s in enumerate(shapes) if s is not None)
    linear: tuple = ()
    if name in _EACH:
        linear = tuple(frozenset([i]) for i in arrays)
    elif name in _FIRST and 0 in arrays:
        linear = (frozenset([0]),)
    elif name in _TOGETHER and len(arrays) == len(shapes):
        linear = (arrays,)
    return Layout(tuple(ins), (tuple(range(ndim)),), linear=linear)


def layout_of(prim: Any, args: Any, params: dict) -> Layout | None:
    """What ``prim`` says of itself for these arguments; None where it says nothing."""
    if prim.shard is not None:
        return prim.shard(*args, **params)
    if prim.elementwise and not prim.random:
        return elementwise(prim.name, args)
    return None
