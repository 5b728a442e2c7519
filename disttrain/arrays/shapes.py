"""What changes the form of arrays, joins, splits and repeats them, with NumPy's arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops import api as ops
from .axes import Axis, axes_of, axis_of, shape_of


def reshape(a: Tensor, shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """The same elements in another shape, of which one entry may be -1; rows first, or columns
    (``order="F"``)."""
    sizes, total = shape_of(shape), math.prod(a.shape)
    if -1 in sizes:
        rest = -math.prod(sizes)
        if sizes.count(-1) > 1 or not rest or total % rest:
            raise TypeError(
                f"cannot reshape array of shape {tuple(a.shape)} (size {total}) into shape {sizes}"
            )
        sizes = tuple(total // rest if n == -1 else n for n in sizes)
    if math.prod(sizes) != total:
        raise TypeError(
            f"cannot reshape array of shape {tuple(a.shape)} (size {total}) into shape {sizes} "
            f"(size {math.prod(sizes)})"
        )
    if order not in ("C", "F", "K", "A"):
        raise ValueError(f"Unexpected value for 'order' argument: {order}.")
    if order != "F":
        return a.reshape(sizes)
    return transpose(transpose(a).reshape(sizes[::-1]))


def ravel(a: Tensor, order: str = "C") -> Tensor:
    """All elements in one dimension."""
    return reshape(a, (math.prod(a.shape),), order)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The dimensions in another order; reversed without ``axes``."""
    order = tuple(range(a.ndim))[::-1] if axes is None else tuple(axis_of(d, a.ndim) for d in axes)
    if sorted(order) != list(range(a.ndim)):
        raise TypeError(
            f"transpose permutation isn't a permutation of operand dimensions: {axes}, {a.ndim}"
        )
    return ops.permute(a, order) if a.ndim > 1 else a


def matrix_transpose(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    if x.ndim < 2:
        raise ValueError(
            f"x must be at least two-dimensional for matrix_transpose; ndim is {x.ndim}"
        )
    return ops.transpose(x, -1, -2)


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    """Two dimensions swapped."""
    return ops.transpose(a, axis_of(axis1, a.ndim), axis_of(axis2, a.ndim))


def moveaxis(a: Tensor, source: Axis, destination: Axis) -> Tensor:
    """Dimensions moved to other places."""
    ends = axes_of(source, a.ndim), axes_of(destination, a.ndim)
    if len(ends[0]) != len(ends[1]):
        raise ValueError(f"Inconsistent number of elements: {len(ends[0])} vs {len(ends[1])}")
    return ops.movedim(a, *ends) if ends[0] else a


def rollaxis(a: Tensor, axis: int, start: int = 0) -> Tensor:
    """Dimension ``axis`` moved to before ``start``."""
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start} must satisfy {-a.ndim}<=start<={a.ndim}")
    start, axis = start + a.ndim if start < 0 else start, axis_of(axis, a.ndim)
    return moveaxis(a, axis, start - 1 if start > axis else start)


def expand_dims(a: Tensor, axis: Axis) -> Tensor:
    """New dimensions of size 1."""
    axes: Any = (axis,) if hasattr(axis, "__index__") else tuple(axis)  # type: ignore[arg-type]
    for d in sorted(axes_of(axes, a.ndim + len(axes))):
        a = ops.unsqueeze(a, d)
    return a


def squeeze(a: Tensor, axis: Axis = None) -> Tensor:
    """Dimensions of size 1 dropped: all, or ``axis``."""
    if axis is None:
        axis = tuple(d for d, n in enumerate(a.shape) if n == 1)
    axes = axes_of(axis, a.ndim)
    for d in axes:
        if a.shape[d] != 1:
            raise ValueError(
                "cannot select an axis to squeeze out which has size not equal to one, got shape="
                f"{tuple(a.shape)} and dimensions={axes}"
            )
    return a.reshape([n for d, n in enumerate(a.shape) if d not in axes])


def broadcast_to(array: Tensor, shape: Any) -> Tensor:
    """``array`` repeated to ``shape``."""
    sizes = shape_of(shape)
    if len(sizes) < array.ndim or any(
        n not in (1, m) for n, m in zip(array.shape[::-1], sizes[::-1])
    ):
        raise ValueError(
            f"Incompatible shapes for broadcasting: {tuple(array.shape)}, requested: {sizes}"
        )
    return ops.broadcast_to(array, sizes)


def _few(tensors: Sequence[Tensor], verb: str) -> None:
    if not len(tensors):
        raise ValueError(f"Need at least one array to {verb}.")


def concatenate(arrays: Sequence[Tensor], axis: int | None = 0) -> Tensor:
    """Arrays one after the other along ``axis``; flattened ones for None."""
    _few(arrays, "concatenate")
    if axis is None:
        arrays, axis = [ravel(a) for a in arrays], 0
    if not arrays[0].ndim:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    if any(a.ndim != arrays[0].ndim for a in arrays):
        shapes = ", ".join(str(tuple(a.shape)) for a in arrays)
        raise TypeError(
            f"Cannot concatenate arrays with different numbers of dimensions: got {shapes}."
        )
    d = axis_of(axis, arrays[0].ndim)
    first = tuple(arrays[0].shape)
    for a in arrays:
        if tuple(a.shape[:d]) != first[:d] or tuple(a.shape[d + 1 :]) != first[d + 1 :]:
            raise TypeError(
                "Cannot concatenate arrays with shapes that differ in dimensions other than the "
                f"one being concatenated: concatenating along dimension {d} for shapes "
                f"{', '.join(str(tuple(a.shape)) for a in arrays)}."
            )
    return ops.cat(list(arrays), d) if len(arrays) > 1 else arrays[0]


def stack(arrays: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Arrays of one shape along a new dimension."""
    _few(arrays, "stack")
    if any(tuple(a.shape) != tuple(arrays[0].shape) for a in arrays):
        raise ValueError("All input arrays must have the same shape.")
    return ops.stack(list(arrays), axis_of(axis, arrays[0].ndim + 1))


def atleast_1d(a: Tensor) -> Tensor:
    """At least one dimension."""
    return a if a.ndim else a.reshape(1)


def atleast_2d(a: Tensor) -> Tensor:
    """At least two dimensions, new ones in front."""
    return a if a.ndim > 1 else a.reshape(1, math.prod(a.shape))


def atleast_3d(a: Tensor) -> Tensor:
    """At least three dimensions."""
    if a.ndim > 2:
        return a
    return ops.unsqueeze(a, -1) if a.ndim == 2 else ops.unsqueeze(atleast_2d(a), -1)


def vstack(arrays: Sequence[Tensor]) -> Tensor:
    """Rows on rows."""
    return concatenate([atleast_2d(a) for a in arrays], 0)


def hstack(arrays: Sequence[Tensor]) -> Tensor:
    """Columns beside columns; arrays of one dimension one after the other."""
    _few(arrays, "concatenate")
    lines = [atleast_1d(a) for a in arrays]
    return concatenate(lines, 0 if lines[0].ndim == 1 else 1)


def dstack(arrays: Sequence[Tensor]) -> Tensor:
    """Along the third dimension."""
    return concatenate([atleast_3d(a) for a in arrays], 2)


def column_stack(arrays: Sequence[Tensor]) -> Tensor:
    """Arrays of one dimension as columns, beside matrices."""
    return concatenate([a if a.ndim > 1 else a.reshape(-1, 1) for a in arrays], 1)


def array_split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Parts along ``axis``, as equal as can be, or ended by indices."""
    d = axis_of(axis, ary.ndim)
    n = ary.shape[d]
    if hasattr(indices_or_sections, "__index__") and not getattr(indices_or_sections, "shape", ()):
        parts = indices_or_sections.__index__()
        size, more = divmod(n, parts)
        ends = [0]
        for k in range(parts):
            ends.append(ends[-1] + size + (k < more))
    else:
        ends = [0, *(int(i) for i in indices_or_sections), n]
    ends = [max(e + n, 0) if e < 0 else min(e, n) for e in ends]
    return [ops.narrow(ary, d, a, max(b - a, 0)) for a, b in itertools.pairwise(ends)]


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """``array_split`` in parts that are equal."""
    n = ary.shape[axis_of(axis, ary.ndim)]
    many = hasattr(indices_or_sections, "__index__") and not getattr(
        indices_or_sections, "shape", ()
    )
    if many and n % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def vsplit(ary: Tensor, indices_or_sections: Any) -> list[Tensor]:
    """``split`` along the first dimension."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: Tensor, indices_or_sections: Any) -> list[Tensor]:
    """``split`` along the second dimension (the only one)."""
    return split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def dsplit(ary: Tensor, indices_or_sections: Any) -> list[Tensor]:
    """``split`` along the third dimension."""
    return split(ary, indices_or_sections, 2)


def unstack(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """What lies along ``axis``."""
    if not x.ndim:
        raise ValueError(
            "Unstack requires arrays with rank > 0, however a scalar array was passed."
        )
    return tuple(ops.unbind(x, axis_of(axis, x.ndim)))


def tile(A: Tensor, reps: Any) -> Tensor:  # noqa: N803
    """``A`` side by side so often in each dimension."""
    return ops.tile(A, shape_of(reps))


def repeat(
    a: Tensor, repeats: Any, axis: int | None = None, total_repeat_length: int | None = None
) -> Tensor:
    """Every element so often: a number, or one for each."""
    if axis is None:
        a, axis = ravel(a), 0
    d = axis_of(axis, a.ndim)
    if isinstance(repeats, Tensor) and repeats.ndim and repeats.shape[0] == 1:
        repeats = repeats[0]
    if total_repeat_length is None:
        many: Any = ops.as_tensor(repeats)
        many = many if many.ndim else int(many)
        return ops.repeat_interleave(a, many, d)
    counts = ops.broadcast_to(ops.as_tensor(repeats), (a.shape[d],))
    ends = ops.cumsum(counts, 0)
    places = ops.searchsorted(ends, ops.arange(total_repeat_length).to(ends.dtype), right=True)
    return ops.index_select(a, d, ops.clamp(places, max=a.shape[d] - 1))


def flip(m: Tensor, axis: Axis = None) -> Tensor:
    """The other way round along ``axis`` (all)."""
    return ops.flip(m, axes_of(axis, m.ndim)) if m.ndim else m


def flipud(m: Tensor) -> Tensor:
    """Rows the other way round."""
    return flip(m, 0)


def fliplr(m: Tensor) -> Tensor:
    """Columns the other way round."""
    return flip(m, 1)


def rot90(m: Tensor, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Turned by quarters."""
    if m.ndim < 2:
        raise ValueError(
            f"rot90 requires its first argument to have ndim at least two, but got {m}"
        )
    return ops.rot90(m, k, tuple(axis_of(d, m.ndim) for d in axes))


def roll(a: Tensor, shift: Any, axis: Axis = None) -> Tensor:
    """Moved along ``axis``, around the end."""
    if axis is None:
        return roll(ravel(a), shift, 0).reshape(a.shape)
    axes = axes_of(axis, a.ndim)
    steps = shift if isinstance(shift, (tuple, list)) else [shift]
    steps = list(steps) * (len(axes) // len(steps)) if len(steps) < len(axes) else steps
    axes = axes * (len(steps) // len(axes))
    for by, d in zip(steps, axes):
        if isinstance(by, Tensor) and getattr(by, "interp", None) is None:
            by = int(by)
        if isinstance(by, Tensor):
            places = ops.remainder(ops.arange(a.shape[d]) - by, a.shape[d])
            a = ops.index_select(a, d, places)
        elif a.shape[d]:
            a = ops.roll(a, int(by), d)
    return a


def resize(a: Tensor, new_shape: Any) -> Tensor:
    """``new_shape``, filled with the elements again and again."""
    sizes, flat = shape_of(new_shape), ravel(a)
    total = math.prod(sizes)
    if not flat.shape[0]:
        return a.new_zeros(sizes)
    return ops.tile(flat, (-(-total // flat.shape[0]),))[:total].reshape(sizes)


def pad(array: Tensor, pad_width: Any, mode: str = "constant", **how: Any) -> Tensor:
    """Margins on all sides: constant, edge, reflect, symmetric, wrap, linear_ramp, empty, and
    maximum, mean, median, minimum of ``stat_length`` elements."""
    widths = _pairs(pad_width, array.ndim)
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    values = how.get("constant_values", how.get("end_values", 0))
    ends = _value_pairs(values, array.ndim)
    for d, (before, after) in enumerate(widths):
        if callable(mode):
            raise NotImplementedError("pad: a function as mode")
        array = _MODES.get(mode, _by_places)(array, d, before, after, mode, ends[d], how)
    return array


def _pairs(given: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(given, dict):
        named = {d % ndim: given[d] for d in given}
        return [(w, w) if isinstance(w, int) else tuple(w) for w in
                (named.get(d, 0) for d in range(ndim))]  # fmt: skip
    try:
        spread = np.broadcast_to(np.asarray(given), (ndim, 2))
    except ValueError:
        raise ValueError(
            f"jnp.pad: {given} given with ndim={ndim}; valid are a number, a pair, or a pair "
            "for each dimension"
        ) from None
    return [(int(a), int(b)) for a, b in spread]


def _value_pairs(given: Any, ndim: int) -> list[tuple[Any, Any]]:
    if isinstance(given, Tensor):
        spread = ops.broadcast_to(given, (ndim, 2))
        return [(spread[d, 0], spread[d, 1]) for d in range(ndim)]
    if not isinstance(given, (tuple, list)):
        return [(given, given)] * ndim
    pairs = [tuple(g) if isinstance(g, (tuple, list)) else (g, g) for g in given]
    if len(pairs) == 2 and not isinstance(given[0], (tuple, list)):
        pairs = [(given[0], given[1])]
    pairs = [p if len(p) == 2 else (p[0], p[0]) for p in pairs]
    return pairs * ndim if len(pairs) == 1 else pairs


def _margin(x: Tensor, d: int, n: int, value: Any) -> Tensor:
    shape = list(x.shape)
    shape[d] = n
    if isinstance(value, Tensor):
        return ops.broadcast_to(value.to(x.dtype), shape)
    return x.new_full(shape, value)


def _constant(
    x: Tensor, d: int, before: int, after: int, mode: str, ends: tuple, how: dict
) -> Tensor:
    if not (before or after):
        return x
    return ops.cat([_margin(x, d, before, ends[0]), x, _margin(x, d, after, ends[1])], d)


def _ramp(x: Tensor, d: int, before: int, after: int, mode: str, ends: tuple, how: dict) -> Tensor:
    n, line = x.shape[d], [1] * x.ndim
    sides = []
    for width, edge, end in ((before, 0, ends[0]), (after, n - 1, ends[1])):
        line[d] = width
        share = (ops.arange(width).to(x.dtype) / max(width, 1)).reshape(line)
        share = share if edge == 0 else 1 - (share + 1.0 / max(width, 1)) + 0 * share
        first = ops.narrow(x, d, edge, 1)
        sides.append((end + (first - end) * share).to(x.dtype))
    return ops.cat([sides[0], x, sides[1]], d)


def _statistic(
    x: Tensor, d: int, before: int, after: int, mode: str, ends: tuple, how: dict
) -> Tensor:
    n = x.shape[d]
    lengths = how.get("stat_length")
    spans = [(n, n)] * x.ndim if lengths is None else _pairs(lengths, x.ndim)
    fn = {"maximum": ops.amax, "minimum": ops.amin, "mean": ops.mean, "median": _middle}[mode]
    first = ops.narrow(x, d, 0, min(spans[d][0], n))
    last = ops.narrow(x, d, n - min(spans[d][1], n), min(spans[d][1], n))
    sides = [_rounded(fn, part, d, x) for part in (first, last)]
    sizes = [list(x.shape), list(x.shape)]
    sizes[0][d], sizes[1][d] = before, after
    return ops.cat(
        [ops.broadcast_to(sides[0], sizes[0]), x, ops.broadcast_to(sides[1], sizes[1])], d
    )


def _rounded(fn: Any, part: Tensor, d: int, x: Tensor) -> Tensor:
    if x.meta()[1].kind in "iu" and fn in (ops.mean, _middle):
        return ops.round(fn(part.double(), d, keepdim=True)).to(x.dtype)
    return fn(part, d, keepdim=True)


def _middle(x: Tensor, d: int, keepdim: bool) -> Tensor:
    return ops.quantile(x, 0.5, d, keepdim=keepdim)


def _by_places(
    x: Tensor, d: int, before: int, after: int, mode: str, ends: tuple, how: dict
) -> Tensor:
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    if not (before or after):
        return x
    n = x.shape[d]
    if not n:
        raise ValueError(
            f"can't extend empty axis {d} using modes other than 'constant' or 'empty'"
        )
    odd = how.get("reflect_type", "even") == "odd" and mode in ("reflect", "symmetric")
    most = n - (mode == "reflect")
    if odd and most and max(before, after) > most:  # of what is reflected already, once more
        first = min(before, most), min(after, most)
        x = _by_places(x, d, *first, mode, ends, how)
        return _by_places(x, d, before - first[0], after - first[1], mode, ends, how)
    kind: Any = mode
    places = np.pad(np.arange(n), (before, after), mode=kind)
    out = ops.index_select(x, d, ops.as_tensor(places))
    if odd:
        return _odd(x, out, d, before, after)
    return out


def _odd(x: Tensor, out: Tensor, d: int, before: int, after: int) -> Tensor:
    n = x.shape[d]
    parts = [2 * ops.narrow(x, d, 0, 1) - ops.narrow(out, d, 0, before), x,
             2 * ops.narrow(x, d, n - 1, 1) - ops.narrow(out, d, before + n, after)]  # fmt: skip
    return ops.cat(parts, d)


_MODES: dict[Any, Any] = {
    "constant": _constant, "empty": _constant, "linear_ramp": _ramp, "maximum": _statistic,
    "mean": _statistic, "median": _statistic, "minimum": _statistic,
}  # fmt: skip


def block(arrays: Any) -> Tensor:
    """Arrays in nested lists, joined along the last dimension first."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, list) else 0

    def most(x: Any) -> int:
        return max(map(most, x)) if isinstance(x, list) else x.ndim

    levels = depth(arrays)
    ndim = max(levels, most(arrays))

    def join(x: Any, level: int) -> Tensor:
        if not isinstance(x, list):
            return x.reshape((1,) * (ndim - x.ndim) + tuple(x.shape))
        return concatenate([join(part, level + 1) for part in x], ndim - levels + level)

    return join(arrays, 0)


def append(arr: Tensor, values: Tensor, axis: int | None = None) -> Tensor:
    """``values`` after ``arr``."""
    return concatenate([arr, values], axis)


__all__ = [
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "broadcast_to",
    "column_stack", "concatenate", "dsplit", "dstack", "expand_dims", "flip", "fliplr", "flipud",
    "hsplit", "hstack", "matrix_transpose", "moveaxis", "pad", "ravel", "repeat", "reshape",
    "resize", "roll", "rollaxis", "rot90", "split", "squeeze", "stack", "swapaxes", "tile",
    "transpose", "unstack", "vsplit", "vstack",
]  # fmt: skip
