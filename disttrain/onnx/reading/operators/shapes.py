"""Operators that rearrange: shapes, pieces, copies along axes; and tensors made of sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ShapeError
from ....ops import api
from ..elements import held_in
from ..numbers import Numbers
from ..table import operator
from .elementwise import check_count, check_sizes
from .reductions import plain, whole


@operator("Constant")
def literal(
    *, value: Any = None, value_float: Any = None, value_floats: Any = None, value_int: Any = None,
    value_ints: Any = None, value_string: Any = None, value_strings: Any = None,
    sparse_value: Any = None,
) -> np.ndarray:  # fmt: skip
    """The array of a node that says its value."""
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.array(value_float if value_floats is None else value_floats, np.float32)
    if value_int is not None or value_ints is not None:
        return np.array(value_int if value_ints is None else value_ints, np.int64)
    texts = value_string if value_strings is None else list(value_strings)
    return np.array(texts, object)


@operator("Shape")
def _shape(x: Any, *, start: int = 0, end: int | None = None) -> Tensor:
    sizes = list(x.shape)[slice(start, end)]
    return api.tensor(sizes, dtype=dtypes.int64)


@operator("Size")
def _size(x: Any) -> Tensor:
    return api.tensor(math.prod(x.shape), dtype=dtypes.int64)


@operator("Reshape", numbers=(1,))
def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = plain(shape) or []
    if not allowzero:
        sizes = [x.shape[i] if type(n) is int and n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    cut = axis + x.ndim if axis < 0 else axis
    first = math.prod(x.shape[:cut])
    return x.reshape(first, math.prod(x.shape[cut:]))


@operator("Squeeze", numbers=(1,))
def _squeeze(x: Any, axes: Any = None) -> Any:
    along = plain(axes)
    if isinstance(x, np.ndarray):
        return x.squeeze(None if along is None else tuple(along))
    if along is None:
        return api.squeeze(x)
    for axis in along:
        if x.shape[axis] != 1:
            raise ShapeError(f"axis {axis} of {tuple(x.shape)} has not size 1")
    return api.squeeze(x, tuple(along))


@operator("Unsqueeze", numbers=(1,))
def _unsqueeze(x: Any, axes: Any) -> Any:
    along = plain(axes) or []
    ndim = x.ndim + len(along)
    for axis in sorted(a + ndim if a < 0 else a for a in along):
        x = np.expand_dims(x, axis) if isinstance(x, np.ndarray) else api.unsqueeze(x, axis)
    return x


@operator("Transpose")
def _transpose(x: Any, *, perm: Any = None) -> Any:
    order = tuple(reversed(range(x.ndim))) if perm is None else tuple(perm)
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)


@operator("Concat")
def _concat(*given: Any, axis: int = 1, node: Any) -> Any:
    check_sizes(sum(math.prod(x.shape) for x in given), node)
    if isinstance(given[0], np.ndarray):
        return np.concatenate(given, axis)
    return api.cat(list(given), axis)


@operator("Split", numbers=(1,))
def _split(
    x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None, node: Any
) -> Any:
    n, parts = x.shape[axis], node.num_outputs
    sizes = plain(split)
    if sizes is None:
        each = -(-n // parts)
        sizes = [each] * (parts - 1) + [n - each * (parts - 1)]
    return tuple(api.split(x, sizes, axis))


@operator("Slice", numbers=(1, 2, 3, 4))
def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = plain(starts) or [], plain(ends) or []
    along = plain(axes)
    along = list(range(len(first))) if along is None else along
    step = plain(steps) or [1] * len(first)
    for axis, i, j, k in zip(along, first, last, step):
        x = _sliced(x, axis, i, j, k)
    return x


def _sliced(x: Any, axis: int, start: Any, end: Any, step: Any) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    before = (slice(None),) * axis
    if step > 0:
        end = None if type(end) is int and end >= 2**31 - 1 else end
        return x[(*before, slice(start, end, step))]
    n = x.shape[axis]
    places = np.arange(n)[slice(start, None if end < -n else end, step)]
    if isinstance(x, np.ndarray):
        return np.take(x, places, axis)
    return api.index_select(x, axis, api.tensor(places, device=x.device))


@operator("Expand", numbers=(1,))
def _expand(x: Tensor, shape: Any, *, node: Any) -> Tensor:
    sizes = plain(shape) or []
    full = api.broadcast_shapes(tuple(x.shape), tuple(sizes))
    check_sizes(math.prod(full), node)
    return x.expand(full)


@operator("Tile", numbers=(1,))
def _tile(x: Any, repeats: Any, *, node: Any) -> Any:
    times = plain(repeats) or []
    check_sizes(math.prod(x.shape) * math.prod(times), node)
    return np.tile(x, times) if isinstance(x, np.ndarray) else x.repeat(*times) if times else x


@operator("ConstantOfShape", numbers=(0,))
def _constant_of_shape(shape: Any, *, value: Any = None, node: Any) -> Tensor:
    sizes = plain(shape) or []
    check_sizes(math.prod(sizes), node)
    if value is None:
        return api.zeros(sizes, dtype=node.type_of(dtypes.float32))
    kind = node.type_of(dtypes.of(value.dtype))
    return api.full(sizes, value.ravel()[0].item(), dtype=kind)


@operator("Range", numbers=(0, 1, 2))
def _range(
    start: Numbers, limit: Numbers, delta: Numbers, *, stash_type: int = 1, node: Any
) -> Tensor:
    first, last, step = start.one(), limit.one(), delta.one()
    if step == 0:
        raise ShapeError("a range with steps of 0")
    if type(first) in (int, float) and type(last) in (int, float):
        check_sizes(max(0, math.ceil((last - first) / step)), node)
    if (last - first) * step <= 0:
        return api.zeros((0,), dtype=start.kind)
    return api.arange(first, last, step, dtype=start.kind)


@operator("EyeLike")
def _eye_like(x: Tensor, *, k: int = 0, dtype: int | None = None) -> Tensor:
    kind = x.dtype if dtype is None else held_in(dtype)
    rows, columns = x.shape
    return api.tensor(np.eye(rows, columns, k)).to(kind)


@operator("Trilu", numbers=(1,))
def _trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    return (api.triu if upper else api.tril)(x, whole(k, 0))


@operator("DepthToSpace")
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b, deep = blocksize, c // blocksize**2
    if mode == "DCR":
        y = x.reshape(n, b, b, deep, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, deep, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, deep, h * b, w * b)


@operator("SpaceToDepth")
def _space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    y = x.reshape(n, c, h // b, b, w // b, b)
    y = y.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


@operator("CenterCropPad", numbers=(1,))
def _center_crop_pad(x: Tensor, shape: Any, *, axes: Any = None, node: Any) -> Tensor:
    sizes = plain(shape) or []
    check_sizes(math.prod([*sizes, *(x.shape if axes is not None else ())]), node)
    along = list(range(x.ndim)) if axes is None else list(axes)
    for axis, wanted in zip(along, sizes):
        have = x.shape[axis]
        if wanted < have:
            x = api.narrow(x, axis, (have - wanted) // 2, wanted)
        elif wanted > have:
            first = (wanted - have) // 2
            x = _padded(x, axis, first, wanted - have - first)
    return x


def _padded(x: Tensor, axis: int, first: int, last: int) -> Tensor:
    parts = [x]
    for count, at in ((first, 0), (last, 2)):
        shape = list(x.shape)
        shape[axis] = count
        parts.insert(at, api.zeros(shape, dtype=x.dtype, device=x.device))
    return api.cat(parts, axis)


@operator("Pad", numbers=(1, 3))
def _pad(
    x: Tensor, pads: Any = None, constant_value: Any = None, axes: Any = None, *,
    mode: str = "constant", value: float = 0.0, paddings: Any = None, node: Any,
) -> Tensor:  # fmt: skip
    given = plain(pads if pads is not None else paddings) or []
    along = plain(axes)
    along = list(range(x.ndim)) if along is None else along
    half = len(given) // 2
    fill = constant_value if constant_value is not None else value
    check_sizes(math.prod(n + sum(map(abs, given)) for n in x.shape) if given else 0, node)
    for axis, first, last in zip(along, given[:half], given[half:]):
        axis = axis + x.ndim if axis < 0 else axis
        x = _cropped(x, axis, min(first, 0), min(last, 0))
        x = pad_axis(x, axis, max(first, 0), max(last, 0), mode, fill)
    return x


def _cropped(x: Tensor, axis: int, first: int, last: int) -> Tensor:
    if first == 0 and last == 0:
        return x
    return api.narrow(x, axis, -first, x.shape[axis] + first + last)


def pad_axis(x: Tensor, axis: int, first: Any, last: Any, mode: str, fill: Any = 0.0) -> Tensor:
    """More elements before and after those of an axis."""
    if type(first) is int and type(last) is int and first == 0 and last == 0:
        return x
    n = x.shape[axis]
    check_count(
        math.prod(x.shape) + math.prod([*x.shape[:axis], *x.shape[axis + 1 :], first + last])
    )
    if mode == "constant":
        parts = [_filled(x, axis, first, fill), x, _filled(x, axis, last, fill)]
        return api.cat(parts, axis)
    places = np.arange(-first, n + last)
    if mode == "edge":
        places = places.clip(0, n - 1)
    elif mode == "wrap":
        places = places % n
    elif mode == "reflect":
        period = max(2 * (n - 1), 1)
        places = np.abs((places + (n - 1)) % period - (n - 1)) if n > 1 else places * 0
    else:
        raise ShapeError(f"padding of mode {mode!r}; known are constant, edge, reflect, wrap")
    return api.index_select(x, axis, api.tensor(places, device=x.device))


def _filled(x: Tensor, axis: int, count: Any, fill: Any) -> Tensor:
    shape = list(x.shape)
    shape[axis] = count
    if isinstance(fill, Tensor):
        return fill.reshape([1] * len(shape)).expand(shape)
    return api.full(shape, fill, dtype=x.dtype, device=x.device)
