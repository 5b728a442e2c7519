"""What a primitive says about being cut in pieces: ``Layout``, and that of elementwise ones.

A ``Layout`` names every dimension of every argument and result. Dimensions of one name are cut
together: where an argument's dimension of that name is cut, the operation may run on the pieces if
all arguments that have the name are cut alike (those that have it not are whole), and gives pieces
of the results that have the name, and partial results, to be reduced by ``reduce``, where they have
it not. ``None`` names a dimension that must be whole. Pure data: knows no mesh and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Cut(NamedTuple):
    """This rank's piece of the dimensions of one name: where it starts, in all of how many."""

    length: int
    start: int
    full: int


@dataclass(frozen=True)
class Layout:
    """``ins``: names per argument (None for what is no array); ``outs``: names per result.

    * ``reduce``: what makes one of results over a name that they have not ("sum", "avg", "max",
      "min", "product"; None: such a name cannot be cut).
    * ``linear``: sets of arguments that may be partial sums together, and then the result is one.
    * ``once``: arguments that are added to a sum over names that they have not: they must count
      once, so where such a name is cut they are partial themselves.
    * ``even``: names that must be cut in equal pieces, each with a number that must be divisible.
    * ``shapes``: parameters that are the shape of result i, which is another one for pieces.
    * ``local``: runs the pieces where the plain way is wrong: ``local(prim, pieces, params, cuts)``
      with a ``Cut`` per name that is cut.
    """

    ins: tuple
    outs: tuple
    reduce: str | None = None
    linear: tuple[frozenset[int], ...] = ()
    once: frozenset[int] = frozenset()
    even: dict[Any, int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    local: Callable | None = None


class Rewrite(NamedTuple):
    """An operation that is several others where arrays are cut: ``run(*args, **params)`` on arrays,
    through primitives."""

    run: Callable


def together(*arguments: int) -> tuple[frozenset[int], ...]:
    """Linear in these arguments together."""
    return (frozenset(arguments),)


def each(*arguments: int) -> tuple[frozenset[int], ...]:
    """Linear in each of these arguments for itself."""
    return tuple(frozenset([i]) for i in arguments)


def shape_of(a: object) -> tuple | None:
    """The shape of an array; None for what is none."""
    if isinstance(a, np.generic):  # a number
        return None
    shape = getattr(a, "shape", None)
    return None if shape is None else tuple(shape)


def names(a: Any, *whole: int) -> tuple:
    """The dimensions of ``a`` named by their numbers, those in ``whole`` not to be cut."""
    return tuple(None if d in whole else d for d in range(len(a.shape)))


def aligned(args: Any, ndim: int | None = None) -> tuple[tuple, tuple]:
    """(names per argument, names of the result) for broadcasting: dimensions are counted from the
    last one, and those of size 1 that are repeated are whole."""
    shapes = [shape_of(a) for a in args]
    ndim = max(len(s) for s in shapes if s is not None) if ndim is None else ndim
    full = [1] * ndim
    given = ", ".join(str(list(s)) for s in shapes if s is not None)
    for s in shapes:
        for i, n in enumerate(s or (), ndim - len(s or ())):
            if n not in (1, full[i]) and full[i] != 1:
                raise ValueError(f"shapes {given} cannot be broadcast together")
            full[i] = n if full[i] == 1 else full[i]
    ins: list = []
    for s in shapes:
        if s is None:
            ins.append(None)
            continue
        lead = ndim - len(s)
        ins.append(tuple(i + lead if n == full[i + lead] else None for i, n in enumerate(s)))
    return tuple(ins), tuple(range(ndim))


# Elementwise primitives that are linear: in each argument, in the first, in all together.
_EACH = {"mul"}
_FIRST = {"gelu_backward", "gelu_tanh_backward", "silu_backward", "relu_backward",
          "stepwise", "stepwise_backward", "masked_scale"}  # fmt: skip
_TOGETHER = {"add", "sub", "neg", "clone", "conj", "real", "imag"}


def elementwise(name: str, args: list) -> Layout:
    """The layout of an elementwise primitive."""
    ins, out = aligned(args)
    arrays = [i for i, names_ in enumerate(ins) if names_ is not None]
    linear: tuple = ()
    if name in _EACH:
        linear = each(*arrays) if _tame(args) else ()
    elif name == "div" and arrays == [0] and _tame(args) and args[1] != 0:
        linear = each(0)  # (by zeros in an array, parts that are zero would give nan)
    elif name in _FIRST and 0 in arrays:
        linear = each(0)
    elif name in _TOGETHER and len(arrays) == len(ins):
        linear = together(*arrays)
    elif name == "where":
        linear = together(*(i for i in (1, 2) if i in arrays)) if _zeros_aside(args) else ()
    return Layout(ins, (out,), linear=linear)


def _tame(args: list) -> bool:
    """Whether numbers among ``args`` are finite."""
    return all(np.isfinite(a) for a in args if shape_of(a) is None)


def _zeros_aside(args: list) -> bool:
    """Whether what ``where`` chooses between are arrays, or one array and zero."""
    numbers = [a for a in args[1:] if shape_of(a) is None]
    return len(numbers) < 2 and all(n == 0 for n in numbers)
