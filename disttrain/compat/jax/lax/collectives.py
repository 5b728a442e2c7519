"""``lax``'s collectives over named axes: those of ``func``, of trees of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from ....func import axes
from ..array import Array, wrap
from .lifting import of_leaves

_NAMES = """
psum pmean pmax pmin all_gather psum_scatter all_to_all ppermute pvary pshuffle pswapaxes pbroadcast
"""


def _counted(fn: Callable) -> Callable:
    """``fn`` of how many hold, for flags."""
    return lambda t, *args, **more: fn(t.to(dt.int32) if t.dtype == dt.bool else t, *args, **more)


def axis_index(axis_name: Any) -> Array:
    """The place of each along the axis."""
    return wrap(dt.as_tensor(axes.axis_index(axis_name)).to(dt.int32))


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """``x``, as a value that may differ along the axis (``to="varying"``)."""
    if to != "varying":
        raise NotImplementedError(f"pcast(to={to!r})")
    return NAMES["pvary"](x, axis_name)


NAMES: dict[str, Any] = {
    **{name: of_leaves(name, getattr(axes, name)) for name in _NAMES.split()},
    **{name: of_leaves(name, _counted(getattr(axes, name))) for name in ("psum", "pmean")},
    "axis_index": axis_index, "axis_size": axes.axis_size, "pcast": pcast,
}  # fmt: skip
