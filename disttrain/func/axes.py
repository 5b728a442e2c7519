"""Collectives over named axes: what the examples of a ``vmap(..., axis_name=)``, or the ranks of a
``spread``, give each other. Each takes a tensor or a structure of them.

    vmap(lambda x: x / psum(x, "batch"), axis_name="batch")

They are differentiable, inside and outside of the axis, and mean the same for examples of one
process and for ranks. (JAX's names and meanings; pmax and pmin have derivatives, too.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .. import tree
from ..core.tensor import Tensor
from ..core.types.dtypes import int64
from ..errors import ConfigError, DimError, ShapeError
from ..ops.functions.creation.data import as_tensor
from ..ops.functions.gathering import index_select
from ..ops.functions.reduce import amax, amin
from ..ops.functions.views.shapes import movedim
from ..ops.primitives.batching import merge, split
from . import named
from .named import axis_of, is_staged, varies

Name = Hashable  # or a tuple of names: all of them, the first outermost


def _axes(where: str, name: Any) -> list:
    names = name if isinstance(name, (tuple, list)) else (name,)
    return [axis_of(where, n) for n in names]


def _each(where: str, name: Any, x: Any, do: Callable) -> Any:
    """``do(leaf, axes)`` for each leaf, which is a Tensor."""
    axes = _axes(where, name)

    def leaf(value: Any) -> Any:
        if not isinstance(value, Tensor):
            raise ConfigError(f"{where}: a {type(value).__name__} is given; tensors are needed")
        return do(value, axes)

    return tree.map(leaf, x)


def axis_size(axis_name: Any) -> int:
    """How many examples, or ranks, the axis has."""
    return math.prod(axis.size for axis in _axes("axis_size", axis_name))


def axis_index(axis_name: Any) -> Any:
    """The number of the example, or rank, an integer tensor."""
    axes = _axes("axis_index", axis_name)
    index = axes[0].index()
    for axis in axes[1:]:
        index = index * axis.size + axis.index()
    return index


def pvary(x: Any, axis_name: Any) -> Any:
    """``x``, as a value of its own for each example: where derivatives are told apart by that
    (``spread(..., varying=True)``), its gradient is the sum of theirs."""

    def do(value: Tensor, axes: list) -> Any:
        for axis in axes:
            value = named.Vary(value, axis=axis)
        return value

    return _each("pvary", axis_name, x, do)


def _varied(x: Any, axis: Any) -> Any:
    """``x`` as an argument of what the examples send each other."""
    same = axis.varying and not is_staged(x, axis) and not varies(x, axis)
    return named.Vary(x, axis=axis) if same else x


def psum(x: Any, axis_name: Any) -> Any:
    """The sum over all examples. A Python number is one of each."""

    def do(value: Tensor, axes: list) -> Any:
        if value.meta()[1].kind == "b":  # how many hold
            value = value.to(int64)
        for axis in axes:
            value = named.Sum(_varied(value, axis), axis=axis)
        return value

    if isinstance(x, (int, float, complex)):
        return x * math.prod(axis.size for axis in _axes("psum", axis_name))
    return _each("psum", axis_name, x, do)


def pmean(x: Any, axis_name: Any) -> Any:
    """The mean over all examples."""
    count = axis_size(axis_name)
    return tree.map(lambda total: total / count, psum(x, axis_name))


def _extreme(where: str, of: Callable) -> Callable:
    def do(value: Tensor, axes: list) -> Any:
        for axis in axes:
            gather = named.GatherSame if axis.varying else named.Gather
            value = of(gather(_varied(value, axis), axis=axis), 0)
        return value

    return lambda x, name: _each(where, name, x, do)


def pmax(x: Any, axis_name: Any) -> Any:
    """The greatest of all examples."""
    return _extreme("pmax", amax)(x, axis_name)


def pmin(x: Any, axis_name: Any) -> Any:
    """The least of all examples."""
    return _extreme("pmin", amin)(x, axis_name)


def all_gather(x: Any, axis_name: Any, *, axis: int = 0, tiled: bool = False) -> Any:
    """All examples' ``x``: stacked as a new dimension ``axis``, or, ``tiled``, one behind the other
    along it."""

    def do(value: Tensor, axes: list) -> Any:
        out = value
        for over in reversed(axes):
            out = named.Gather(_varied(out, over), axis=over)
        for _ in axes[1:]:
            out = merge(out)
        return _joined(out, _dim("all_gather", axis, value.ndim + (not tiled)), tiled)

    return _each("all_gather", axis_name, x, do)


def in_groups(x: Any, axis_name: Any, groups: Sequence[Sequence[int]]) -> Any:
    """The ``x`` of all that are in one of ``groups`` (of places along the axis) with oneself, in
    its order, as a new dimension in front."""
    size = axis_size(axis_name)
    if sorted(i for g in groups for i in g) != list(range(size)) or len(set(map(len, groups))) > 1:
        raise ConfigError(
            f"axis_index_groups={groups}: needed are groups of one size that have each of "
            f"{size} places once"
        )
    table = as_tensor([list(next(g for g in groups if i in g)) for i in range(size)])
    mine = index_select(table, 0, as_tensor(axis_index(axis_name)).reshape(1))[0]
    return index_select(all_gather(x, axis_name), 0, mine)


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """This example's part, along ``scatter_dimension``, of the sum over all: of as many elements as
    there are examples the one at its place, or, ``tiled``, an equal piece."""
    where = "psum_scatter"

    def do(value: Tensor, axes: list) -> Any:
        dim = _dim(where, scatter_dimension, value.ndim)
        out = _parted(where, value, dim, math.prod(a.size for a in axes), tiled)
        for i, over in enumerate(axes):
            rest = math.prod(a.size for a in axes[i + 1 :])
            out = split(out, over.size) if len(axes) > 1 and rest > 1 else out
            out = named.Scatter(_varied(out, over), axis=over)
            if rest == 1:
                break
        return out

    return _each(where, axis_name, x, do)


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Any:
    """Pieces of ``x`` along ``split_axis`` to all examples, pieces of all examples joined along
    ``concat_axis``: as a new dimension, or, ``tiled``, one behind the other."""
    where = "all_to_all"

    def do(value: Tensor, axes: list) -> Any:
        (over,) = _one(where, axes)
        dim = _dim(where, split_axis, value.ndim)
        parts = _parted(where, value, dim, over.size, tiled)
        out = named.Exchange(_varied(parts, over), axis=over)
        return _joined(out, _dim(where, concat_axis, value.ndim), tiled)

    return _each(where, axis_name, x, do)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """``x`` of example a for example b, for each pair (a, b) of ``perm``; zeros for those that are
    sent nothing."""
    pairs = tuple([(int(a), int(b)) for a, b in perm])

    def do(value: Tensor, axes: list) -> Any:
        (over,) = _one("ppermute", axes)
        _check_pairs(pairs, over.size)
        return named.Permute(_varied(value, over), axis=over, perm=pairs)

    return _each("ppermute", axis_name, x, do)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """``ppermute`` by the sources of all targets."""
    size = axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ConfigError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(size), strict=True)))


def pswapaxes(x: Any, axis_name: Any, axis: int) -> Any:
    """The named axis and a dimension exchanged."""
    return all_to_all(x, axis_name, axis, axis)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of one example for all."""
    return tree.map(lambda found: found[source], all_gather(x, axis_name))


def _check_pairs(pairs: tuple, size: int) -> None:
    for what, numbers in (("sources", [a for a, _ in pairs]), ("targets", [b for _, b in pairs])):
        if len(set(numbers)) < len(numbers) or not all(0 <= n < size for n in numbers):
            raise ConfigError(
                f"ppermute: perm={list(pairs)} has the {what} {numbers}; needed are different "
                f"ones, of 0 to {size - 1}"
            )


def _one(where: str, axes: list) -> list:
    if len(axes) != 1:
        raise ConfigError(f"{where}: {len(axes)} axis names are given; needed is one")
    return axes


def _dim(where: str, dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise DimError(f"{where}: dimension {dim} is given; there are {ndim}")
    return dim % ndim


def _parted(where: str, x: Any, dim: int, count: int, tiled: bool) -> Any:
    """``x`` with ``count`` pieces of dimension ``dim`` as dimension 0."""
    size = x.shape[dim]
    if tiled and size % count:
        raise ShapeError(
            f"{where}: dimension {dim} has the size {size}; needed is a multiple of the size of "
            f"the axis, {count}"
        )
    if not tiled and size != count:
        raise ShapeError(
            f"{where}: dimension {dim} has the size {size}; needed is the size of the axis, "
            f"{count} (or tiled=True)"
        )
    return movedim(split(x, count, dim) if tiled else x, dim, 0)


def _joined(x: Any, dim: int, tiled: bool) -> Any:
    """``x`` with its dimension 0 at ``dim``: of its own, or (``tiled``) one with what is there."""
    out = movedim(x, 0, dim)
    return merge(out, dim) if tiled else out
