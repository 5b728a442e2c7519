"""``lax``'s functions that make and rearrange arrays, and take and replace parts of them."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....arrays import dynamic, margins, places
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....ops import api as ops
from ..array import Array, wrap
from ..numpy.lifting import cast
from ..transforms import as_array
from ..types import asked as canonical
from .elementwise import check_same_types, value_of


def _axis(d: Any, ndim: int) -> int:
    d = operator.index(d)
    if not -ndim <= d < ndim:
        raise ValueError(f"axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


def _shape(sizes: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {sizes}."
        ) from None


# --- made ----------------------------------------------------------------------------------------
def iota(dtype: Any, size: int) -> Array:
    """0 to ``size - 1``."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Array:
    """The places along ``dimension``, in an array of this shape."""
    sizes, kind = _shape(shape), canonical(dtype)
    row = ops.arange(sizes[dimension])
    row = row.reshape([-1 if d == dimension else 1 for d in range(len(sizes))])
    return wrap(row.expand(sizes).to(dtypes.of(kind)))


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Array:
    """An array of one value."""
    value = as_array(fill_value)
    if value.shape:
        raise TypeError(
            f"lax.full must be called with scalar fill_value; got fill_value.shape {value.shape}."
        )
    kind = value.dtype if dtype is None else canonical(dtype)
    filled = cast(value._value, kind).expand(_shape(shape))
    return wrap(filled, value.weak_type and dtype is None)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None
) -> Array:
    """An array such as ``x`` of one value."""
    sizes = np.shape(x) if shape is None else shape
    own = as_array(x) if not hasattr(x, "dtype") or isinstance(x, np.ndarray) else x
    weak = dtype is None and getattr(own, "weak_type", False)
    return wrap(full(sizes, fill_value, own.dtype if dtype is None else dtype)._value, weak)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Array:
    """An array of zeros."""
    return full(shape, 0, dtype)


# --- rearranged ----------------------------------------------------------------------------------
def _given(name: str, x: Any, make: Callable[[Tensor], Tensor]) -> Array:
    a = value_of(name, x)
    return wrap(make(a._value), a.weak_type)


def reshape(operand: Any, new_sizes: Any, dimensions: Any = None, *, out_sharding: Any = None
            ) -> Array:  # fmt: skip
    """``operand`` in another shape."""
    a, sizes = value_of("reshape", operand), _shape(new_sizes)
    if int(np.prod(sizes)) != int(np.prod(a.shape)):
        raise TypeError(
            f"reshape total size must be unchanged, got new_sizes {sizes} (total size "
            f"{int(np.prod(sizes))}) for shape {a.shape} (total size {int(np.prod(a.shape))})"
        )
    value = a._value if dimensions is None else a._value.permute(*dimensions)
    return wrap(value.reshape(sizes), a.weak_type)


def broadcast(operand: Any, sizes: Any, *, out_sharding: Any = None) -> Array:
    """``operand`` with new dimensions in front."""
    a = value_of("broadcast", operand)
    return wrap(a._value.expand((*_shape(sizes), *a.shape)), a.weak_type)


def broadcast_in_dim(
    operand: Any, shape: Any, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """``operand``, whose dimensions become those that are named, in this shape."""
    a, sizes, dims = value_of("broadcast_in_dim", operand), _shape(shape), [*broadcast_dimensions]
    if len(dims) != a.ndim:
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim; got "
            f"broadcast_dimensions {tuple(dims)} for operand ndim {a.ndim}."
        )
    if any(not 0 <= d < len(sizes) for d in dims):
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions, got "
            f"{tuple(dims)} for operand ndim {a.ndim} and shape {sizes}."
        )
    if any(n not in (1, sizes[d]) for n, d in zip(a.shape, dims, strict=True)):
        raise TypeError(
            "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
            f"corresponding dimensions in the target broadcast shape; got operand of shape "
            f"{a.shape}, target broadcast shape {sizes}, broadcast_dimensions {tuple(dims)} "
        )
    order = sorted(range(a.ndim), key=dims.__getitem__)
    laid = [1] * len(sizes)
    for n, d in zip(a.shape, dims, strict=True):
        laid[d] = n
    value = a._value.permute(*order) if order else a._value
    return wrap(value.reshape(laid).expand(sizes), a.weak_type)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """``x`` with dimensions of 1 in front."""
    return _given("broadcast_to_rank", x, lambda t: t.reshape((1,) * (rank - t.ndim) + tuple(t.shape)))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that these are broadcast to."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        text = ", ".join(str(tuple(s)) for s in shapes)
        raise ValueError(f"Incompatible shapes for broadcasting: shapes=[{text}]") from None


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """``array`` with dimensions of 1 at these places."""
    a = value_of("expand_dims", array)
    places_ = {_axis(d, a.ndim + len(dimensions)) for d in dimensions}
    if len(places_) != len(dimensions):
        raise ValueError(f"repeated axis in lax.expand_dims: {dimensions}")
    rest = iter(a.shape)
    sizes = [1 if d in places_ else next(rest) for d in range(a.ndim + len(dimensions))]
    return wrap(a._value.reshape(sizes), a.weak_type)


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """``array`` without these dimensions of 1."""
    a = value_of("squeeze", array)
    dims = sorted(_axis(d, a.ndim) for d in dimensions)
    if any(a.shape[d] != 1 for d in dims):
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one, got "
            f"shape={a.shape} and dimensions={tuple(dims)}"
        )
    return wrap(a._value.reshape([n for d, n in enumerate(a.shape) if d not in dims]), a.weak_type)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """``operand`` with dimensions from one to before another as one."""
    a = value_of("collapse", operand)
    lo, hi, _ = slice_type(start_dimension, stop_dimension).indices(a.ndim)
    if hi < lo:
        raise ValueError(
            f"Invalid dimension range passed to collapse: {a.shape}[{lo}:{hi}]"
        )  # fmt: skip
    merged = int(np.prod(a.shape[lo:hi]))
    return wrap(a._value.reshape((*a.shape[:lo], merged, *a.shape[hi:])), a.weak_type)


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """``operand`` with its dimensions in another order."""
    a, order = value_of("transpose", operand), tuple(operator.index(d) for d in permutation)
    if sorted(order) != list(range(a.ndim)):
        raise TypeError(
            f"transpose permutation isn't a permutation of operand dimensions, got permutation "
            f"{order} for operand shape {a.shape}."
        )
    return wrap(a._value.permute(*order) if order else a._value, a.weak_type)


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """``operand`` backwards along these dimensions."""
    return _given("rev", operand, lambda t: ops.flip(t, tuple(dimensions)) if dimensions else t)


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """Copies side by side."""
    return _given("tile", operand, lambda t: ops.tile(t, tuple(reps)))


def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays one behind the other."""
    arrays = [value_of("concatenate", x, i) for i, x in enumerate(operands)]
    if not arrays:
        raise ValueError("concatenate requires a non-empty sequences of arrays")
    if len({a.ndim for a in arrays}) > 1:
        raise TypeError(
            f"Cannot concatenate arrays with different numbers of dimensions: got "
            f"{', '.join(str(a.shape) for a in arrays)}."
        )
    if not 0 <= dimension < arrays[0].ndim:
        raise TypeError(
            f"concatenate dimension out of bounds: dimension {dimension} for shapes "
            f"{', '.join(str(a.shape) for a in arrays)}."
        )
    if len({a.shape[:dimension] + a.shape[dimension + 1 :] for a in arrays}) > 1:
        raise TypeError(
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one "
            f"being concatenated: concatenating along dimension {dimension} for shapes "
            f"{', '.join(str(a.shape) for a in arrays)}."
        )
    check_same_types("concatenate", arrays)
    return wrap(ops.cat([a._value for a in arrays], dimension), all(a.weak_type for a in arrays))


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """Arrays along a new dimension."""
    arrays = [value_of("stack", x, i) for i, x in enumerate(operands)]
    check_same_types("stack", arrays)
    return wrap(ops.stack([a._value for a in arrays], axis), all(a.weak_type for a in arrays))


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The slices along a dimension."""
    a = value_of("unstack", x)
    return tuple(wrap(t, a.weak_type) for t in ops.unbind(a._value, axis))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Parts of these sizes."""
    a = value_of("split", operand)
    if sum(sizes) != a.shape[axis]:
        raise ValueError(
            f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the operand shape "
            f"{list(a.shape)}."
        )
    return [wrap(t, a.weak_type) for t in ops.split(a._value, list(sizes), axis)]


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """``operand`` with margins (negative too) and gaps: (low, high, interior) per dimension."""
    a, value = value_of("pad", operand), value_of("pad", padding_value, 1)
    config = [tuple(operator.index(n) for n in row) for row in padding_config]
    check_same_types("pad", (a, value))
    if value.shape:
        raise TypeError(f"padding_value must be a scalar; got shape {value.shape}")
    if len(config) != a.ndim:
        raise ValueError(
            "length of padding_config must equal the number of axes of operand, got padding_config "
            f"{config} for operand shape {a.shape}"
        )
    if any(gap < 0 for _, _, gap in config):
        raise ValueError(f"interior padding in padding_config must be nonnegative, got padding_config {config}")
    shape = margins.padded_shape(a.shape, config)
    if any(n < 0 for n in shape):
        raise ValueError(f"Dimension size after padding is not at least 0, got result shape {shape}, for padding_config {config} and operand shape {a.shape}")
    return wrap(margins.pad(a._value, value._value, config), a.weak_type)


# --- parts ---------------------------------------------------------------------------------------
slice_type = slice


def slice(  # noqa: A001
    operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None
) -> Array:
    """The part from ``start_indices`` to before ``limit_indices``."""
    a = value_of("slice", operand)
    start, limit = _shape(start_indices), _shape(limit_indices)
    steps = (1,) * a.ndim if strides is None else _shape(strides)
    for name, given in (("start_indices", start), ("limit_indices", limit)):
        if len(given) != a.ndim:
            raise TypeError(
                f"slice {name} must have length equal to the number of dimensions of the operand, "
                f"got {name} {given} for operand shape {a.shape}."
            )
    if any(m > n for m, n in zip(limit, a.shape, strict=True)):
        raise TypeError(
            f"slice limit_indices must be less than or equal to operand shape, got limit_indices "
            f"{limit} for operand shape {a.shape}."
        )
    if any(s < 0 for s in start):
        raise TypeError(
            f"slice start_indices must be greater than or equal to zero, got start_indices of "
            f"{start}."
        )
    if any(m < s for s, m in zip(start, limit, strict=True)):
        raise TypeError(
            "slice limit_indices must be greater than or equal to start_indices, got start_indices "
            f"{start} and limit_indices {limit}."
        )
    at = tuple(slice_type(*row) for row in zip(start, limit, steps, strict=True))
    return wrap(a._value[at] if at else a._value, a.weak_type)


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """A part along one dimension."""
    a = value_of("slice_in_dim", operand)
    d = _axis(axis, a.ndim)
    lo, hi, _ = slice_type(start_index, limit_index).indices(a.shape[d])
    at = (slice_type(None),) * d + (slice_type(lo, max(lo, hi), stride),)
    return wrap(a._value[at], a.weak_type)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """One slice along a dimension."""
    a = value_of("index_in_dim", operand)
    d = _axis(axis, a.ndim)
    i = operator.index(index)
    if not -a.shape[d] <= i < a.shape[d]:
        raise IndexError(f"index {i} is out of bounds for axis {d} with size {a.shape[d]}")
    part = a._value.select(d, i % a.shape[d])
    return wrap(part.unsqueeze(d) if keepdims else part, a.weak_type)


def _starts(name: str, a: Array, start: Any) -> Tensor:
    if isinstance(start, Array) or hasattr(start, "shape"):
        row = as_array(start)._value
        return row.long()
    given = [as_array(s) for s in start]
    if len(given) != a.ndim:
        raise ValueError(
            f"{name}: expected {a.ndim} start indices for an operand of shape {a.shape}, got "
            f"{len(given)}"
        )
    for g in given:
        if g.dtype.kind not in "iu":
            raise TypeError(
                f"index arguments to {name} must be integers of the same type, got: "
                f"{', '.join(x.dtype.name for x in given)}"
            )
    if not given:
        return ops.zeros(0).long()
    rows = [g._value.long().reshape(1) for g in given]
    return _from_end(ops.cat(rows), a.shape)


def _from_end(start: Tensor, shape: tuple[int, ...]) -> Tensor:
    sizes = ops.tensor(list(shape)).long()
    return ops.where(start < 0, start + sizes, start)


def dynamic_slice(
    operand: Any, start_indices: Any, slice_sizes: Any, *, allow_negative_indices: Any = True
) -> Array:
    """A part of fixed sizes from where arrays say; it is moved inside."""
    a, sizes = value_of("dynamic_slice", operand), _shape(slice_sizes)
    if len(sizes) != a.ndim or any(k > n or k < 0 for k, n in zip(sizes, a.shape, strict=True)):
        raise TypeError(
            f"slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
            f"{sizes} for operand shape {a.shape}."
        )
    start = _starts("dynamic_slice", a, start_indices)
    return wrap(dynamic.dynamic_slice(a._value, start, sizes), a.weak_type)


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: Any = True
) -> Array:
    """``operand`` with ``update`` in it from where arrays say."""
    a, u = value_of("dynamic_update_slice", operand), value_of("dynamic_update_slice", update, 1)
    check_same_types("dynamic_update_slice", (a, u))
    if a.ndim != u.ndim:
        raise TypeError(
            f"dynamic_update_slice update must have the same rank as operand, got update shape "
            f"{u.shape} for operand shape {a.shape}."
        )
    if any(k > n for k, n in zip(u.shape, a.shape, strict=True)):
        raise TypeError(
            f"dynamic_update_slice update shape must be smaller than operand shape, got update "
            f"shape {u.shape} for operand shape {a.shape}."
        )
    start = _starts("dynamic_update_slice", a, start_indices)
    return wrap(dynamic.dynamic_update_slice(a._value, u._value, start), a.weak_type)


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *,
    allow_negative_indices: bool = True,
) -> Array:  # fmt: skip
    """``dynamic_slice`` along one dimension."""
    a = value_of("dynamic_slice", operand)
    d = _axis(axis, a.ndim)
    sizes = [slice_size if i == d else n for i, n in enumerate(a.shape)]
    return dynamic_slice(a, [start_index if i == d else 0 for i in range(a.ndim)], sizes)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
    allow_negative_indices: bool = True,
) -> Array:  # fmt: skip
    """One slice along a dimension, which one an array says."""
    out = dynamic_slice_in_dim(operand, index, 1, axis)
    return out if keepdims else squeeze(out, [axis])


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """``dynamic_update_slice`` along one dimension."""
    a = value_of("dynamic_update_slice", operand)
    d = _axis(axis, a.ndim)
    return dynamic_update_slice(a, update, [start_index if i == d else 0 for i in range(a.ndim)])


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """``operand`` with one slice replaced."""
    a, u = value_of("dynamic_update_slice", operand), value_of("dynamic_update_slice", update, 1)
    d = _axis(axis, a.ndim)
    if u.ndim != a.ndim:
        u = expand_dims(u, (d,))
    return dynamic_update_slice_in_dim(a, u, index, d)


# --- gather and scatter --------------------------------------------------------------------------
class GatherDimensionNumbers(NamedTuple):
    """Which dimensions of a gather are which."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which dimensions of a scatter are which."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """What becomes of slices beyond the ends."""

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2
    ONE_HOT = 3

    @staticmethod
    def from_any(given: Any) -> GatherScatterMode:
        """The mode of this name."""
        if isinstance(given, GatherScatterMode):
            return given
        names = {"clip": 0, "fill": 1, "drop": 1, "promise_in_bounds": 2, None: 1}
        if given not in names:
            raise ValueError(f'Unknown gather mode "{given}"')
        return GatherScatterMode(names[given])


def gather(
    operand: Any, start_indices: Any, dimension_numbers: GatherDimensionNumbers, slice_sizes: Any,
    *, unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
    fill_value: Any = None,
) -> Array:  # fmt: skip
    """The slices of ``operand`` that the rows of ``start_indices`` name."""
    a, at = value_of("gather", operand), value_of("gather", start_indices, 1)
    numbers, sizes = places.Numbers(*map(tuple, dimension_numbers)), _shape(slice_sizes)
    if at.dtype.kind not in "iu":
        raise ValueError("indices must have an integer type")
    if len(sizes) != a.ndim or any(k > n or k < 0 for k, n in zip(sizes, a.shape, strict=True)):
        raise TypeError(f"Gather op has invalid slice_sizes {sizes} for operand shape {a.shape}")
    if len(numbers.offset) != a.ndim - len(numbers.collapsed) - len(numbers.batch):
        raise TypeError("Gather op must have as many offset_dims as dimensions of the operand are left")
    fill = mode is not None and GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    if fill_value is None:
        fill_value = float("nan") if a.dtype.kind in "fcV" else _out_of_bounds(a.dtype)
    out = places.gather(a._value, at._value, numbers, sizes, "fill" if fill else "clip", fill_value)
    return wrap(out, a.weak_type)


def _out_of_bounds(kind: np.dtype) -> Any:
    if kind.kind == "b":
        return True
    info = np.iinfo(kind)
    return int(info.min if kind.kind == "i" else info.max)


def _scatterer(name: str, how: str, sign: int = 1) -> Callable:
    def run(
        operand: Any, scatter_indices: Any, updates: Any,
        dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
        unique_indices: bool = False, mode: Any = None,
    ) -> Array:  # fmt: skip
        a, at = value_of(name, operand), value_of(name, scatter_indices, 1)
        u = value_of(name, updates, 2)
        check_same_types(name, (a, u))
        numbers = places.Numbers(*map(tuple, dimension_numbers))
        clip = GatherScatterMode.from_any(mode) is GatherScatterMode.CLIP
        values = u._value if sign > 0 else -u._value
        out = places.scatter(a._value, at._value, values, numbers, how, "clip" if clip else "drop")
        return wrap(out, a.weak_type)

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"XLA's {name}."
    return run


scatter = _scatterer("scatter", "set")
scatter_add, scatter_sub = _scatterer("scatter_add", "sum"), _scatterer("scatter_sub", "sum", -1)
scatter_mul = _scatterer("scatter_mul", "prod")
scatter_max, scatter_min = _scatterer("scatter_max", "amax"), _scatterer("scatter_min", "amin")


def scatter_apply(
    operand: Any, scatter_indices: Any, func: Callable, dimension_numbers: ScatterDimensionNumbers,
    *, update_shape: Any = (), indices_are_sorted: bool = False, unique_indices: bool = False,
    mode: Any = None,
) -> Array:  # fmt: skip
    """``operand`` with ``func`` of what is there at these places."""
    a = value_of("scatter_apply", operand)
    ones = full(update_shape, 1, np.int32)
    count = scatter_add(full(a.shape, 0, np.int32), scatter_indices, ones, dimension_numbers, mode=mode)
    found = as_array(func(a))
    return wrap(ops.where(count._value > 0, found._value, a._value), a.weak_type)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """The slices at ``idxs`` along ``axes``."""
    a = value_of("index_take", src)
    rows = ops.stack([as_array(i)._value.long() for i in idxs], -1)
    sizes = [1 if d in axes else n for d, n in enumerate(a.shape)]
    numbers = GatherDimensionNumbers(
        tuple(range(1, a.ndim - len(axes) + 1)), tuple(axes), tuple(axes)
    )
    return gather(a, wrap(rows), numbers, sizes, mode="fill")


NAMES = {
    name: value for name, value in vars().items()
    if not name.startswith("_") and getattr(value, "__module__", "") in (__name__, "jax.lax")
}  # fmt: skip
