"""Functions of ``jax.numpy`` that take functions, several conventions at once, or no array."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....arrays import products, selection, shapes
from ....core.tensor import Tensor
from ....func.vectorize import along_axis, per_element
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from . import functions
from .lifting import LIFTING, cast, function, given_back, kind_of, one, operands, plain
from .making import asarray


def where(
    condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """``x`` where the condition holds, ``y`` elsewhere; alone, the places where it holds."""
    if x is None and y is None:
        return functions.NAMES["nonzero"](condition, size=size, fill_value=fill_value)
    for place, given in enumerate((x, y), 1):
        if given is None:
            raise LIFTING.unfit("where", None, place)
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where.")
    flags, (tensors, weak) = one("where", condition), operands("where", (x, y))
    try:
        return given_back(selection.where(flags, *tensors), weak)
    except ValueError:
        given_shapes = [tuple(t.shape) for t in (flags, *tensors)]
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={given_shapes}") from None


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Of functions, or numbers, the one whose condition holds; the last, one more, elsewhere."""
    n = len(condlist)
    if n != len(funclist) and n + 1 != len(funclist):
        raise ValueError(
            f"with {n} condition(s), either {n} or {n + 1} functions are expected; "
            f"got {len(funclist)}"
        )
    values = [asarray(f(x, *args, **kw) if callable(f) else f) for f in (*funclist, 0)]
    tensors = [cast(v._value, asarray(x).dtype) for v in values]
    flags = [one("piecewise", c) != 0 for c in condlist]
    return wrap(selection.select(flags, tensors[:n], tensors[n]))


def einsum(subscripts: Any, /, *operands_: Any, out: Any = None, **how: Any) -> Array:
    """Einstein's sum: ``einsum("ij,jk", a, b)``, or arrays and lists of numbers by turns."""
    if isinstance(subscripts, str):
        text, given = subscripts, list(operands_)
    else:
        text, given = products.subscripts([subscripts, *operands_])
    tensors, weak = operands("einsum", given)
    try:
        value = products.einsum(tensors, text.replace(" ", ""))
    except (ValueError, IndexError, RuntimeError) as error:
        raise ValueError(f"einsum: {error}") from None
    kind = how.get("preferred_element_type")
    return given_back(value if kind is None else cast(value, types.asked(kind, "einsum")), weak)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Slopes by central differences."""
    value = one("gradient", f, types.inexact)
    gaps = [one("gradient", v, types.inexact) if np.ndim(v) else v for v in varargs]
    return given_back(products.gradient(value, *gaps, axis=axis, edge_order=edge_order))


def _tensors(x: Any) -> Any:
    """A function of arrays as one of tensors; an array as a tensor."""
    if not callable(x):
        return asarray(x)._value

    def run(*given: Tensor) -> Any:
        out = x(*map(wrap, given))
        many = isinstance(out, (tuple, list))
        return tuple(asarray(o)._value for o in out) if many else asarray(out)._value

    return run


def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """``func1d`` of every line along ``axis``."""
    run = _tensors(lambda a: func1d(a, *args, **kwargs))
    return given_back(along_axis(run, axis, _tensors(arr)))


def apply_over_axes(func: Callable, a: Any, axes: Any) -> Any:
    """``func(a, axis)`` for one axis after the other."""
    x = asarray(a)
    for axis in (axes,) if hasattr(axes, "__index__") else axes:
        out = func(x, axis)
        x = out if out.ndim == x.ndim else functions.NAMES["expand_dims"](out, axis)
    return x


def vectorize(
    pyfunc: Callable, *, excluded: Any = frozenset(), signature: str | None = None
) -> Callable:
    """A function of single elements (or of the core dimensions of a signature) for whole arrays."""
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError("jax.numpy.vectorize can only exclude integer or string arguments, "
                        f"but excluded={set(excluded)!r}")  # fmt: skip
    run = per_element(pyfunc, excluded, _tensors, signature)
    return functools.wraps(pyfunc)(lambda *args, **given: given_back(run(*args, **given)))


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """Margins on all sides."""
    (value,), weak = operands("pad", (array,))
    width = pad_width if isinstance(pad_width, dict) else np.asarray(pad_width).tolist()
    return given_back(shapes.pad(value, width, mode, **_bare(kwargs)), weak)


def _bare(given: dict) -> dict:
    return {k: LIFTING.bare(v) for k, v in given.items()}


def mask_indices(n: int, mask_func: Callable, k: int = 0, *, size: int | None = None) -> Any:
    """Where a function of a matrix of ones is not 0."""
    return functions.NAMES["nonzero"](mask_func(wrap(ops.ones((n, n))), k), size=size)


def shape(a: Any) -> tuple[int, ...]:
    """The shape."""
    return a.shape if isinstance(a, Array) else np.shape(a)


def size(a: Any, axis: Any = None) -> int:
    """How many elements there are (along ``axis``)."""
    sizes = shape(a)
    axes = range(len(sizes)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(sizes[d] for d in axes)


def result_type(*args: Any) -> np.dtype:
    """The type that arrays, numbers and types meet in."""
    if not args:
        raise ValueError("at least one array or dtype is required")
    return types.result_kind(*map(_kind, args))[0]


def _kind(x: Any) -> types.Kind:
    if isinstance(x, (str, np.dtype, type)):
        return types.asked(x, "result_type"), x in (int, float, complex)
    return kind_of(plain(x), "result_type")


def atleast(name: str) -> Callable:
    """``atleast_1d`` and its kin: one array, or several."""
    single = function(name, getattr(functions.shapes, name), "a", "same", True)

    def run(*arys: Any) -> Any:
        return single(arys[0]) if len(arys) == 1 else [single(a) for a in arys]

    return LIFTING.named(run, name)  # type: ignore[no-any-return]


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that all shapes broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}") from None


NAMES: dict[str, Any] = {
    fn.__name__: fn
    for fn in (where, piecewise, einsum, gradient, apply_along_axis, apply_over_axes, pad,
               vectorize, mask_indices, shape, size, result_type, broadcast_shapes)
}  # fmt: skip
NAMES |= {name: atleast(name) for name in ("atleast_1d", "atleast_2d", "atleast_3d")}
NAMES |= {
    "ndim": lambda a: len(shape(a)), "promote_types": lambda a, b: result_type(a, b),
    "iscomplexobj": lambda x: asarray(x).dtype.kind == "c",
    "isrealobj": lambda x: asarray(x).dtype.kind != "c",
    "isscalar": lambda x: np.isscalar(x) or (hasattr(x, "dtype") and not np.ndim(x)),
    "ix_": function("ix_", selection.open_grid, "lines**", "own"),
    "einsum_path": lambda text, /, *xs, optimize="auto": np.einsum_path(
        text, *(np.empty(np.shape(x)) for x in xs), optimize=True
    ),
}  # fmt: skip
