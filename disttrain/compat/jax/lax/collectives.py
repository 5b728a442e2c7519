"""``lax``'s collectives over named axes: those of ``func``, of trees of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from .... import func
from .. import tree
from ..array import Array, wrap
from ..transforms import as_array


def _mapped(fn: Callable, *, strong: bool = False) -> Callable:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        def one(leaf: Any) -> Array:
            a = as_array(leaf)
            return wrap(fn(a._value, *args, **kwargs), a.weak_type and not strong)

        return tree.tree_map(one, x)

    return run


def _named(name: str, run: Callable) -> Callable:
    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"XLA's {name} over a named axis."
    return run


def _no_groups(name: str, groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError(f"axis_index_groups of {name}")


def _reduced(name: str, fn: Callable) -> Callable:
    def run(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
        _no_groups(name, axis_index_groups)
        return _mapped(fn)(x, axis_name)

    return _named(name, run)


def _counted(fn: Callable) -> Callable:
    """``fn`` of how many hold, for flags."""
    return lambda t, *args: fn(t.to(dt.int32) if t.dtype == dt.bool else t, *args)


psum, pmean = (_reduced(n, _counted(getattr(func, n))) for n in ("psum", "pmean"))
pmax, pmin = _reduced("pmax", func.pmax), _reduced("pmin", func.pmin)


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False,
    **more: Any,
) -> Any:  # fmt: skip
    """The values of all, along ``axis``."""
    _no_groups("all_gather", axis_index_groups)
    return _mapped(func.all_gather)(x, axis_name, axis=axis, tiled=tiled)


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """The sum of all, of which each has a part."""
    _no_groups("psum_scatter", axis_index_groups)
    return _mapped(func.psum_scatter)(
        x, axis_name, scatter_dimension=scatter_dimension, tiled=tiled
    )


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """A part of each to each."""
    _no_groups("all_to_all", axis_index_groups)
    return _mapped(func.all_to_all)(x, axis_name, split_axis, concat_axis, tiled=tiled)


def ppermute(x: Any, axis_name: Any, perm: Any) -> Any:
    """What each (source, target) pair says."""
    return _mapped(func.ppermute)(x, axis_name, perm)


def pshuffle(x: Any, axis_name: Any, perm: Any) -> Any:
    """``ppermute`` by the sources of all targets."""
    size = func.axis_size(axis_name)
    if sorted(perm) != list(range(size)):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(size), strict=True)))


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The named axis and a dimension exchanged."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def axis_index(axis_name: Any) -> Array:
    """The place of each along the axis."""
    return wrap(dt.as_tensor(func.axis_index(axis_name)).to(dt.int32))


def axis_size(axis_name: Any) -> int:
    """How many there are."""
    return func.axis_size(axis_name)


def pvary(x: Any, axis_name: Any) -> Any:
    """``x``, as a value that may differ along the axis."""
    return _mapped(func.pvary)(x, axis_name)


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """``x``, as a value that may differ along the axis (``to="varying"``)."""
    if to != "varying":
        raise NotImplementedError(f"pcast(to={to!r})")
    return pvary(x, axis_name)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of one."""
    return tree.tree_map(lambda leaf: wrap(all_gather(leaf, axis_name)._value[source]), x)


NAMES = {
    name: value for name, value in vars().items()
    if not name.startswith("_") and getattr(value, "__module__", "") in (__name__, "jax.lax")
}  # fmt: skip
