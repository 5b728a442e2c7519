"""``lax``'s collectives over named axes: those of ``func``, of trees of arrays."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from .... import func
from .. import tree
from ..array import Array, wrap
from .lifting import of_leaves

_NAMES = "psum pmean pmax pmin all_gather psum_scatter all_to_all ppermute pvary"
NAMES: dict[str, Any] = {name: of_leaves(name, getattr(func, name)) for name in _NAMES.split()}


def pshuffle(x: Any, axis_name: Any, perm: Any) -> Any:
    """``ppermute`` by the sources of all targets."""
    size = func.axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return NAMES["ppermute"](x, axis_name, list(zip(perm, range(size), strict=True)))


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The named axis and a dimension exchanged."""
    return NAMES["all_to_all"](x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def axis_index(axis_name: Any) -> Array:
    """The place of each along the axis."""
    return wrap(dt.as_tensor(func.axis_index(axis_name)).to(dt.int32))


def axis_size(axis_name: Any) -> int:
    """How many there are."""
    return func.axis_size(axis_name)


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """``x``, as a value that may differ along the axis (``to="varying"``)."""
    if to != "varying":
        raise NotImplementedError(f"pcast(to={to!r})")
    return NAMES["pvary"](x, axis_name)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of one."""
    return tree.tree_map(lambda a: wrap(NAMES["all_gather"](a, axis_name)._value[source]), x)


for _fn in (pshuffle, pswapaxes, axis_index, axis_size, pcast, pbroadcast):
    NAMES[_fn.__name__] = _fn
