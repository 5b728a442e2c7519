"""Functions of a program's arrays that take functions, several conventions at once, or no array."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.types import lattice
from ...func.vectorize import along_axis, per_element
from ...ops import api as ops
from .. import products, selection, shapes
from ..lifting import cast
from .making import Making

_METHODS = """where piecewise einsum gradient apply_along_axis apply_over_axes pad vectorize
mask_indices shape size result_type broadcast_shapes"""


class Calls:
    """Such functions of the arrays that ``making`` makes; ``names``: functions by rows."""

    def __init__(self, making: Making, names: dict[str, Callable]) -> None:
        self.making, self.lifting, self.rows = making, making.lifting, names

    def where(
        self, condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None,
        fill_value: Any = None,
    ) -> Any:  # fmt: skip
        """``x`` where the condition holds, ``y`` elsewhere; alone, the places where it holds."""
        lift = self.lifting
        if x is None and y is None:
            return self.rows["nonzero"](condition, size=size, fill_value=fill_value)
        for place, given in enumerate((x, y), 1):
            if given is None:
                raise lift.unfit("where", None, place)
        if size is not None or fill_value is not None:
            raise ValueError("size and fill_value arguments cannot be used in three-term where.")
        flags, (tensors, weak) = lift.one("where", condition), lift.operands("where", (x, y))
        try:
            return lift.given_back(selection.where(flags, *tensors), weak)
        except ValueError:
            raise _apart([tuple(t.shape) for t in (flags, *tensors)]) from None

    def piecewise(
        self, x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any
    ) -> Any:
        """Of functions, or numbers, the one whose condition holds; the last, one more,
        elsewhere."""
        n = len(condlist)
        if n != len(funclist) and n + 1 != len(funclist):
            raise ValueError(
                f"with {n} condition(s), either {n} or {n + 1} functions are expected; "
                f"got {len(funclist)}"
            )
        kind = self._tensor(x).meta()[1]
        values = (f(x, *args, **kw) if callable(f) else f for f in (*funclist, 0))
        tensors = [cast(self._tensor(v), kind) for v in values]
        flags = [self.lifting.one("piecewise", c) != 0 for c in condlist]
        return self.lifting.give(selection.select(flags, tensors[:n], tensors[n]), False)

    def einsum(self, subscripts: Any, /, *operands: Any, out: Any = None, **how: Any) -> Any:
        """Einstein's sum: ``einsum("ij,jk", a, b)``, or arrays and lists of numbers by turns."""
        lift = self.lifting
        if isinstance(subscripts, str):
            text, given = subscripts, list(operands)
        else:
            text, given = products.subscripts([subscripts, *operands])
        tensors, weak = lift.operands("einsum", given)
        try:
            value = products.einsum(tensors, text.replace(" ", ""))
        except (ValueError, IndexError, RuntimeError) as error:
            raise ValueError(f"einsum: {error}") from None
        kind = how.get("preferred_element_type")
        value = value if kind is None else cast(value, lift.asked(kind, "einsum"))
        return lift.given_back(value, weak)

    def gradient(
        self, f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None
    ) -> Any:
        """Slopes by central differences."""
        taken = functools.partial(self.lifting.one, "gradient", to=lattice.inexact)
        gaps = [taken(v) if np.ndim(v) else v for v in varargs]
        out = products.gradient(taken(f), *gaps, axis=axis, edge_order=edge_order)
        return self.lifting.given_back(out)

    def _tensor(self, x: Any) -> Tensor:
        return self.lifting.take(self.making.asarray(x))[0]

    def _tensors(self, x: Any) -> Any:
        """A function of arrays as one of tensors; an array as a tensor."""
        if not callable(x):
            return self._tensor(x)

        def run(*given: Tensor) -> Any:
            out = x(*(self.lifting.give(t, False) for t in given))
            many = isinstance(out, (tuple, list))
            return tuple(map(self._tensor, out)) if many else self._tensor(out)

        return run

    def apply_along_axis(
        self, func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """``func1d`` of every line along ``axis``."""
        run = self._tensors(lambda a: func1d(a, *args, **kwargs))
        return self.lifting.given_back(along_axis(run, axis, self._tensor(arr)))

    def apply_over_axes(self, func: Callable, a: Any, axes: Any) -> Any:
        """``func(a, axis)`` for one axis after the other."""
        x = self.making.asarray(a)
        for axis in (axes,) if hasattr(axes, "__index__") else axes:
            out = func(x, axis)
            x = out if out.ndim == x.ndim else self.rows["expand_dims"](out, axis)
        return x

    def vectorize(
        self, pyfunc: Callable, *, excluded: Any = frozenset(), signature: str | None = None
    ) -> Callable:
        """A function of single elements (or of the core dimensions of a signature) for whole
        arrays."""
        if any(not isinstance(e, (str, int)) for e in excluded):
            raise TypeError(
                f"{self.lifting.module}.vectorize can only exclude integer or string arguments, "
                f"but excluded={set(excluded)!r}"
            )
        run, back = per_element(pyfunc, excluded, self._tensors, signature), self.lifting.given_back
        return functools.wraps(pyfunc)(lambda *args, **given: back(run(*args, **given)))

    def pad(self, array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
        """Margins on all sides."""
        (value,), weak = self.lifting.operands("pad", (array,))
        width = pad_width if isinstance(pad_width, dict) else np.asarray(pad_width).tolist()
        how = {k: self.lifting.bare(v) for k, v in kwargs.items()}
        return self.lifting.given_back(shapes.pad(value, width, mode, **how), weak)

    def mask_indices(
        self, n: int, mask_func: Callable, k: int = 0, *, size: int | None = None
    ) -> Any:
        """Where a function of a matrix of ones is not 0."""
        ones = self.lifting.give(ops.ones((n, n)), False)
        return self.rows["nonzero"](mask_func(ones, k), size=size)

    def shape(self, a: Any) -> tuple[int, ...]:
        """The shape."""
        return tuple(a.shape) if isinstance(a, self.lifting.own) else np.shape(a)  # type: ignore[attr-defined]

    def size(self, a: Any, axis: Any = None) -> int:
        """How many elements there are (along ``axis``)."""
        sizes = self.shape(a)
        axes = range(len(sizes)) if axis is None else (axis,) if isinstance(axis, int) else axis
        return math.prod(sizes[d] for d in axes)

    def result_type(self, *args: Any) -> np.dtype:
        """The type that arrays, numbers and types meet in."""
        if not args:
            raise ValueError("at least one array or dtype is required")
        return self.lifting.meet([self._kind(x) for x in args])[0]

    def _kind(self, x: Any) -> lattice.Kind:
        if isinstance(x, (str, np.dtype, type)):
            return self.lifting.asked(x, "result_type"), x in (int, float, complex)
        return self.lifting.kind_of(self.lifting.plain(x), "result_type")

    def atleast(self, name: str) -> Callable:
        """``atleast_1d`` and its kin: one array, or several."""
        single = self.lifting.function(name, getattr(shapes, name), "a", "same", True)

        def run(*arys: Any) -> Any:
            return single(arys[0]) if len(arys) == 1 else [single(a) for a in arys]

        return self.lifting.named(run, name)  # type: ignore[no-any-return]

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]:
        """The shape that all shapes broadcast to."""
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            raise _apart(list(shapes)) from None

    def names(self) -> dict[str, Any]:
        """All these, by NumPy's names."""
        lines = selection.open_grid
        return {
            **{n: getattr(self, n) for n in _METHODS.split()},
            **{n: self.atleast(n) for n in ("atleast_1d", "atleast_2d", "atleast_3d")},
            "ndim": lambda a: len(self.shape(a)),
            "promote_types": lambda a, b: self.result_type(a, b),
            "iscomplexobj": lambda x: self._tensor(x).meta()[1].kind == "c",
            "isrealobj": lambda x: self._tensor(x).meta()[1].kind != "c",
            "isscalar": lambda x: np.isscalar(x) or (hasattr(x, "dtype") and not np.ndim(x)),
            "ix_": self.lifting.function("ix_", lines, "lines**", "own"),
            "einsum_path": lambda text, /, *xs, optimize="auto": np.einsum_path(
                text, *(np.empty(np.shape(x)) for x in xs), optimize=True
            ),
        }


def _apart(shapes: list[Any]) -> ValueError:
    return ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}")
