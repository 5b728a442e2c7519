"""Functions of ``jax.numpy`` that make arrays of numbers, shapes and other people's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import making
from ....arrays.axes import shape_of
from ....core.tensor import Tensor
from ....core.tensor import wrap as tensor
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from .lifting import LIFTING, NUMBERS, cast, given_back, kind_of, named, one, plain, table, weak_of


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str = "K", ndmin: int = 0,  # noqa: A002
    *, device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """An array of numbers, nested sequences of them, arrays and whatever numpy takes."""
    if object is None:
        raise ValueError("None is not a valid value for jnp.array")
    kind = None if dtype is None else types.asked(dtype, "array")
    value, weak = LIFTING.made(plain(object), kind)
    if copy and isinstance(object, (Array, Tensor)):
        value = value.clone()
    if value.ndim < ndmin:
        value = value.reshape((1,) * (ndmin - value.ndim) + tuple(value.shape))
    return wrap(value, weak)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """``array``, that keeps an array which is of that type already."""
    same = dtype is None or (a.__class__ is Array and a.dtype == dtype and not a.weak_type)
    return a if same and a.__class__ is Array and not copy else array(a, dtype, bool(copy))


def _filled(name: str, value: int) -> Callable:
    def run(shape: Any, dtype: Any = None, **where: Any) -> Array:
        return full(shape, value, types.asked(dtype, name, float))

    return named(run, name)  # type: ignore[no-any-return]


def full(shape: Any, fill_value: Any, dtype: Any = None, **where: Any) -> Array:
    """One value everywhere."""
    kind = kind_of(plain(fill_value), "full")[0] if dtype is None else types.asked(dtype, "full")
    sizes, weak = shape_of(shape), weak_of(fill_value) and dtype is None
    if any(n < 0 for n in sizes):
        raise TypeError(f"Only non-negative sizes are allowed, got shape {sizes}.")
    if isinstance(fill_value, NUMBERS):
        return wrap(ops.full(sizes, fill_value, dtype=types.dtypes.of(kind)), weak)
    value = cast(one("full", fill_value), kind)
    return given_back(ops.broadcast_to(value, sizes), weak)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **where: Any) -> Array:
    """``full`` in the shape and type of ``a``."""
    shaped = hasattr(a, "shape") and hasattr(a, "dtype")
    kind = (a.dtype if shaped else kind_of(plain(a), "full_like")[0]) if dtype is None else dtype
    weak = weak_of(a) and dtype is None
    sizes = (a.shape if shaped else np.shape(a)) if shape is None else shape
    out = full(sizes, fill_value, types.asked(kind, "full_like"))
    out.weak_type = weak
    return out


def _like(name: str, value: int) -> Callable:
    def run(a: Any, dtype: Any = None, shape: Any = None, **where: Any) -> Array:
        return full_like(a, value, dtype, shape)

    return named(run, name)  # type: ignore[no-any-return]


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, **where: Any
) -> Array:
    """Numbers from ``start`` to before ``stop``."""
    given = [x.item() if hasattr(x, "item") else x for x in (start, stop, step)]
    ends = [x for x in (start, stop, step) if x is not None]
    kind = types.result_kind(*(kind_of(x, "arange") for x in ends))[0]
    kind = kind if dtype is None else types.asked(dtype, "arange")
    numbers = [x for x in given if x is not None]
    if given[1] is None and given[2] is not None:
        numbers = [0, given[0], given[2]]
    return wrap(tensor(np.arange(*numbers).astype(kind)))


_TABLE = """
. stop -> inexact: linspace geomspace; . stop base -> inexact: logspace; m -> same: tril! triu!; v
-> same: diag! diagflat!; xi** -> own: meshgrid
"""
NAMES: dict[str, Any] = table(_TABLE, (making,))
for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    NAMES[_name] = _filled(_name, _value)
    NAMES[f"{_name}_like"] = _like(f"{_name}_like", _value)


def typed_maker(name: str, make: Callable, default: Any = float) -> Callable:
    """A maker of tensors that has a ``dtype`` of its own in JAX."""

    def run(*args: Any, dtype: Any = None, **more: Any) -> Any:
        more = {k: v for k, v in more.items() if k not in LIFTING.ignored}
        kind = types.asked(dtype, name, default)
        out = make(*args, **more)
        many = isinstance(out, tuple)
        return given_back(tuple(cast(p, kind) for p in out) if many else cast(out, kind))

    return named(run, name)


for _name in "hanning hamming blackman bartlett kaiser eye identity tri".split():
    NAMES[_name] = typed_maker(_name, getattr(making, _name))
for _name in "indices tril_indices triu_indices diag_indices".split():
    NAMES[_name] = typed_maker(_name, getattr(making, _name), int)


def fromfunction(function: Callable, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """``function`` of the places of each element."""
    places = NAMES["indices"](tuple(shape_of(shape)), dtype=dtype)
    return function(*places, **kwargs)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """The numbers that lie in a buffer."""
    return asarray(np.frombuffer(buffer, types.asked(dtype, "frombuffer"), count, offset))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The array that another library holds."""
    return array(x if isinstance(x, Array) else ops.from_dlpack(x))


def copy(a: Any, order: str | None = None) -> Array:
    """A copy."""
    return array(a)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """``x`` in another type."""
    return wrap(cast(one("astype", x), types.asked(dtype, "astype", float)))


def broadcast_arrays(*args: Any) -> list[Array]:
    """Arrays repeated to one shape."""
    try:
        out = ops.broadcast_tensors(*(one("broadcast_arrays", x) for x in args)) if args else []
    except ValueError as error:
        raise ValueError(f"Incompatible shapes for broadcasting: {error}") from None
    return [wrap(t, weak_of(x)) for t, x in zip(out, args)]


for _fn in (array, asarray, full, full_like, arange, fromfunction, frombuffer, from_dlpack, copy,
            astype, broadcast_arrays):  # fmt: skip
    NAMES[_fn.__name__] = _fn
NAMES["tril_indices_from"] = lambda arr, k=0: NAMES["tril_indices"](arr.shape[0], k, arr.shape[1])
NAMES["triu_indices_from"] = lambda arr, k=0: NAMES["triu_indices"](arr.shape[0], k, arr.shape[1])
NAMES["diag_indices_from"] = lambda arr: NAMES["diag_indices"](arr.shape[0], arr.ndim)
