"""Functions of ``jax.numpy`` that take functions, several conventions at once, or no array."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import func
from ....arrays import products, selection, shapes
from ....core.tensor import Tensor
from ....func.vectorize import vectorized
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from . import functions
from .lifting import cast, function, given_back, kind_of, one, operands, plain
from .making import asarray


def where(
    condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """``x`` where the condition holds, ``y`` elsewhere; alone, the places where it holds."""
    if x is None and y is None:
        return functions.NAMES["nonzero"](condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError(
            "Either both or neither of the x and y arguments should be provided to where, "
            f"got {x} and {y}."
        )
    flags = one("where", condition)
    flags = flags if flags.meta()[1].kind == "b" else flags != 0
    tensors, weak = operands("where", (x, y))
    try:
        return given_back(ops.where(flags, *tensors), weak)
    except ValueError:
        shapes = [tuple(t.shape) for t in (flags, *tensors)]
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}") from None


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Of functions, or numbers, the one whose condition holds; the last, one more, elsewhere."""
    n = len(condlist)
    if n != len(funclist) and n + 1 != len(funclist):
        raise ValueError(
            f"with {n} condition(s), either {n} or {n + 1} functions are expected; "
            f"got {len(funclist)}"
        )
    kind = asarray(x).dtype
    values = [asarray(f(x, *args, **kw) if callable(f) else f) for f in funclist]
    last = values[n] if len(values) > n else asarray(0)
    tensors = [cast(v._value, kind) for v in (*values[:n], last)]
    flags = [one("piecewise", c) != 0 for c in condlist]
    out = selection.select(flags, tensors[:-1], tensors[-1])
    return given_back(out)


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


def einsum_path(subscripts: Any, /, *given: Any, optimize: Any = "auto") -> Any:
    """The order in which a sum of products is best computed."""
    return np.einsum_path(subscripts, *(np.empty(np.shape(x)) for x in given), optimize=True)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Slopes by central differences."""
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    value = one("gradient", f, types.inexact)
    gaps = [one("gradient", v, types.inexact) if np.ndim(v) else v for v in varargs]
    return given_back(products.gradient(value, *gaps, axis=axis))


def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """``func1d`` of every line along ``axis``."""
    x = asarray(arr)
    d = axis + x.ndim if axis < 0 else axis
    run = functools.partial(_on_tensors, lambda a: func1d(a, *args, **kwargs))
    mapped: Any = run
    for _ in range(x.ndim - 1):
        mapped = func.vmap(mapped, in_dims=0, out_dims=0)
    out = mapped(ops.movedim(x._value, d, -1))
    if out.ndim >= x.ndim:
        more = out.ndim - (x.ndim - 1)
        out = ops.movedim(out, tuple(range(-more, 0)), tuple(range(d, d + more)))
    return given_back(out)


def _on_tensors(fn: Callable, *tensors: Tensor) -> Any:
    out = fn(*(wrap(t) for t in tensors))
    if isinstance(out, (tuple, list)):
        return tuple(asarray(o)._value for o in out)
    return asarray(out)._value


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

    @functools.wraps(pyfunc)
    def run(*args: Any, **given: Any) -> Any:
        fixed = {k: a for k, a in enumerate(args) if k in excluded}
        free = [a for k, a in enumerate(args) if k not in excluded]
        kept = {k: v for k, v in given.items() if k in excluded}
        named = [k for k in given if k not in excluded]

        def call(*xs: Array) -> Any:
            queue = iter(xs[: len(free)])
            full = [fixed[k] if k in fixed else next(queue) for k in range(len(args))]
            return pyfunc(*full, **dict(zip(named, xs[len(free) :])), **kept)

        xs = [*free, *(given[k] for k in named)]
        tensors = [asarray(x)._value for x in xs]
        out = vectorized(functools.partial(_on_tensors, call), tensors, signature)
        return given_back(out)

    return run


def ix_(*args: Any) -> tuple[Array, ...]:
    """An open grid from places along each dimension."""
    return given_back(selection.open_grid([asarray(x)._value for x in args]))


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """Margins on all sides."""
    given = {k: v._value if isinstance(v, Array) else v for k, v in kwargs.items()}
    (value,), weak = operands("pad", (array,))
    width = pad_width if isinstance(pad_width, dict) else np.asarray(pad_width).tolist()
    return given_back(shapes.pad(value, width, mode, **given), weak)


def mask_indices(n: int, mask_func: Callable, k: int = 0, *, size: int | None = None) -> Any:
    """Where a function of a matrix of ones is not 0."""
    ones = wrap(ops.ones((n, n)))
    return functions.NAMES["nonzero"](mask_func(ones, k), size=size)


def shape(a: Any) -> tuple[int, ...]:
    """The shape."""
    return a.shape if isinstance(a, Array) else np.shape(a)


def ndim(a: Any) -> int:
    """How many dimensions there are."""
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """How many elements there are (along ``axis``)."""
    sizes = shape(a)
    axes = range(len(sizes)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(sizes[d] for d in axes)


def result_type(*args: Any) -> np.dtype:
    """The type that arrays, numbers and types meet in."""
    if not args:
        raise ValueError("at least one array or dtype is required")
    return types.result_kind(*(_kind(a) for a in args))[0]


def _kind(x: Any) -> types.Kind:
    if isinstance(x, (str, np.dtype, type)):
        return types.asked(x, "result_type"), x in (int, float, complex)
    return kind_of(plain(x), "result_type")


def promote_types(a: Any, b: Any) -> np.dtype:
    """The type that two types meet in."""
    return types.result_kind(*(_kind(x) for x in (a, b)))[0]


def iscomplexobj(x: Any) -> bool:
    """Whether the type is complex."""
    return asarray(x).dtype.kind == "c"


def isrealobj(x: Any) -> bool:
    """Whether the type is not complex."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether it is a number, or an array of no dimensions."""
    return np.isscalar(element) or (hasattr(element, "dtype") and not np.ndim(element))


def atleast(name: str) -> Callable:
    """``atleast_1d`` and its kin: one array, or several."""
    single = function(name, getattr(functions.shapes, name), "a", "same", True)

    def run(*arys: Any) -> Any:
        return single(arys[0]) if len(arys) == 1 else [single(a) for a in arys]

    run.__name__ = name
    return run


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that all shapes broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}") from None


NAMES: dict[str, Any] = {
    fn.__name__: fn
    for fn in (where, piecewise, einsum, einsum_path, gradient, apply_along_axis, apply_over_axes,
               pad, vectorize, ix_, mask_indices, shape, ndim, size, result_type, promote_types,
               iscomplexobj, isrealobj, isscalar, broadcast_shapes)
}  # fmt: skip
for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    NAMES[_name] = atleast(_name)
