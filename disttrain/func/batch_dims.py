"""Where the batch is: what ``vmap`` is told by ``in_dims`` and ``out_dims``, checked, for each leaf
of arguments and results. Knows trees and sizes; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import tree
from ..core.tensor import Tensor
from ..errors import ConfigError, ShapeError

UNSET = object()  # of an argument that was not given


def either(which: str, dims: Any, axes: Any) -> Any:
    """What is given under one of two names: ``in_dims`` or ``in_axes``."""
    if axes is UNSET:
        return dims
    if dims is not None and dims != 0:
        raise ConfigError(f"vmap: {which}_dims and {which}_axes are given; they mean the same")
    return axes


class _Misfit(Exception):
    """A tree of dimensions has not the form of what it is for."""


def spread_in(in_dims: Any, args: tuple, sized: bool = False) -> list:
    """One entry of ``in_dims`` per leaf of ``args``: an entry stands for everything below it."""
    if in_dims is None and sized:
        return [None for _ in tree.leaves(args, with_none=True)]
    if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
        raise ConfigError(
            "vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}"
        )
    if not args and not sized:
        raise ConfigError(
            "vmap: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs"
        )
    entry = (in_dims,) * len(args) if isinstance(in_dims, int) else in_dims
    found = matched(entry, args)
    if found is None:
        raise ConfigError(
            f"vmap: in_dims is not compatible with the structure of `inputs`: {in_dims!r} given "
            f"for {tree.structure(args)}; one entry for each argument is needed (for a nested one: "
            "one for all of it, or a tree of the same form)"
        )
    return found


def _entries(entry: Any, value: Any) -> Iterator[Any]:
    """One entry per leaf of ``value`` (None is one)."""
    if not isinstance(entry, (tuple, list, dict)):
        yield from (entry for _ in tree.leaves(value, with_none=True))
        return
    for sub, part in _children(entry, value):
        yield from _entries(sub, part)


def _children(entry: Any, value: Any) -> list:
    if isinstance(entry, dict) and isinstance(value, dict) and entry.keys() == value.keys():
        return [(entry[k], value[k]) for k in value]
    for kind in (list, tuple):
        if isinstance(entry, kind) and isinstance(value, kind) and len(entry) == len(value):
            return list(zip(entry, value, strict=True))
    raise _Misfit


def checked(leaves: list, dims: list) -> list:
    """``dims`` counted from the front; each must be a dimension of its leaf, which is a tensor."""
    return [d if d is None else _checked(leaf, d) for leaf, d in zip(leaves, dims, strict=True)]


def _checked(leaf: Any, dim: Any) -> int:
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ConfigError(
            f"vmap: Got in_dim={dim!r} for an input but in_dim must be either an integer dimension "
            "or None"
        )
    if not isinstance(leaf, Tensor):
        raise ConfigError(
            f"vmap: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -leaf.ndim <= dim < leaf.ndim:
        raise ShapeError(
            f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
            f"{leaf.ndim}: it has no dimension {dim} to map over"
        )
    return dim % leaf.ndim


def size_of(leaves: list, dims: list, given: int | None = None) -> int:
    """How many examples there are: as the leaves say, or ``given``."""
    sizes = [leaf.shape[d] for leaf, d in zip(leaves, dims, strict=True) if d is not None]
    sizes += [] if given is None else [given]
    if not sizes:
        raise ConfigError(
            "vmap: at least one Tensor must be mapped over; every entry of in_dims is None, or "
            "there is no tensor among the inputs"
        )
    if any(size != sizes[0] for size in sizes):
        raise ShapeError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def check_out_dims(out_dims: Any) -> None:
    """``out_dims`` must say numbers of dimensions, or None."""
    for d in tree.leaves(out_dims):
        if not isinstance(d, int) or isinstance(d, bool):
            raise ConfigError(
                f"vmap: `out_dims` must be an int, None or a python collection of ints that say "
                f"where in the results the mapped dimension goes; {out_dims!r} given"
            )


def matched(entry: Any, value: Any) -> list | None:
    """One entry per leaf of ``value`` (None is one); None where ``entry`` has another form."""
    try:
        return list(_entries(entry, value))
    except _Misfit:
        return None


def spread_out(out_dims: Any, result: Any) -> list:
    """One entry of ``out_dims`` per leaf of ``result`` (None is one)."""
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and not _is_tree(result):
        result = (result,)
    found = matched(out_dims, result)
    if found is None:
        raise ConfigError(
            f"vmap: out_dims is not compatible with the structure of `outputs`: {out_dims!r} given "
            f"for {tree.structure(result)}"
        )
    return found


def _is_tree(value: Any) -> bool:
    return tree.structure(value) not in ("*", "None")


__all__ = ["check_out_dims", "checked", "matched", "size_of", "spread_in", "spread_out"]
