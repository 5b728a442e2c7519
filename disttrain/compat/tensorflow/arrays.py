"""Making, arranging, reading and putting together of tensors: what stands at TensorFlow's top."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import shapes, slots
from .dispatch import execute, op, plain
from .math import cast
from .tensor import GRAPH, STACK, convert, inner_type, is_tensor, wrap
from .types import DType, TensorShape, as_dtype


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = "Const") -> Any:
    """A tensor of ``value``, filled up to ``shape`` where it is one number."""
    if hasattr(value, "_as_tensor") or is_tensor(value):
        t = convert(value)
        if dtype is not None and t.dtype is not as_dtype(dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {as_dtype(dtype).name} for Tensor with dtype "
                f"{t.dtype.name}: {t!r}"
            )
    else:
        t = convert(value, dtype)
    if shape is not None:
        t = _shaped(t, tuple(TensorShape(shape)))
    graph = GRAPH.get()
    return t if graph is None else graph.inside(t, name or "Const")


def _shaped(t: Any, sizes: tuple) -> Any:
    if int(np.prod(t.shape)) == int(np.prod(sizes)):
        return wrap(t._value.reshape(sizes))
    if t.ndim == 0:
        return wrap(t._value.expand(sizes).clone())
    raise TypeError(
        f"Eager execution of tf.constant with unsupported shape. Tensor {t!r} (converted from "
        f"{t.numpy()!r}) has {int(np.prod(t.shape))} elements, but got `shape` {sizes} with "
        f"{int(np.prod(sizes))} elements)."
    )


def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Any:
    """The tensor of ``value``: itself, if it is one."""
    hint: DType | None = None if dtype_hint is None else as_dtype(dtype_hint)
    return convert(value, dtype, hint)


def _sizes(shape: Any) -> Any:
    return [shape] if isinstance(shape, int) else [int(n) for n in shape]


def _filled(word: str, kind: str, value: int) -> Any:
    def function(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None):
        if as_dtype(dtype).inner is None:
            return convert(np.full(_sizes(plain(shape)), b"", object))
        return fill(shape, convert(value, dtype) if as_dtype(dtype).name != "bool" else bool(value),
                    name=name)  # fmt: skip

    function.__name__ = word
    return function


@op("Fill", "value")
def fill(dims, value, layout=None):
    if value.ndim:
        raise ValueError(f"value must be a scalar, received value with shape {list(value.shape)}")
    return value.expand(_sizes(dims)).clone()


def _like(word: str, kind: str, fn: Any) -> Any:
    def function(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None):  # noqa: A002
        wide = None if dtype is None else inner_type(dtype)
        return execute(kind, lambda v: fn(v.detach(), dtype=wide), [convert(input)], name)

    function.__name__ = word
    return function


def eye(num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = "float32",
        name: str | None = None) -> Any:  # fmt: skip
    """Ones on the diagonal of each matrix."""

    @op("Eye")
    def fn(rows, columns, batch):
        found = dt.eye(rows, rows if columns is None else columns, dtype=inner_type(dtype))
        return found.expand(*_sizes(batch or []), *found.shape).clone()

    return fn(num_rows, num_columns, batch_shape, name=name)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"):  # noqa: A001
    """Numbers from ``start`` (0) to before ``limit`` in steps of ``delta``."""
    if limit is None:
        start, limit = 0, start
    parts = [convert(x) if dtype is None else cast(x, dtype) for x in (start, limit, delta)]
    order = ("int32", "int64", "bfloat16", "float16", "float32", "float64")
    wide = max((p.dtype.name for p in parts), key=lambda n: order.index(n) if n in order else 0)
    kind, parts = inner_type(wide), [cast(p, wide) for p in parts]
    return execute("Range", lambda a, b, c: _range(a.item(), b.item(), c.item(), kind), parts, name)


def _range(first: Any, last: Any, step: Any, kind: Any) -> Any:
    if step == 0:
        raise ValueError("Requires delta != 0")
    if (last - first) * step < 0:
        raise ValueError(f"Requires start {'<' if step > 0 else '>'}= limit when delta "
                         f"{'>' if step > 0 else '<'} 0: {first}/{last}")  # fmt: skip
    return dt.arange(first, last, step, dtype=kind)


@op("LinSpace", same="start stop")
def linspace(start, stop, num, axis=0):
    steps = dt.arange(num, dtype=start.dtype).reshape(-1, *[1] * start.ndim)
    found = start + (stop - start) * steps / max(num - 1, 1)
    if num > 1:
        found = dt.cat([found[:-1], stop.unsqueeze(0).expand(1, *found.shape[1:])])
    return found.movedim(0, axis)


@op("Reshape", "tensor")
def reshape(tensor, shape):
    sizes = _sizes(shape)
    count = int(np.prod([n for n in sizes if n != -1], dtype=int))
    if (-1 not in sizes and count != tensor.numel()) or (-1 in sizes and count and
                                                         tensor.numel() % count):  # fmt: skip
        wanted = f"the requested shape has {count}" if -1 not in sizes else (
            f"the requested shape requires a multiple of {count}")  # fmt: skip
        raise ValueError(f"Input to reshape is a tensor with {tensor.numel()} values, but {wanted}")
    return tensor.reshape(sizes)


@op("Transpose", "a")
def transpose(a, perm=None, conjugate=False):
    order = list(reversed([*np.arange(a.ndim)])) if perm is None else list(perm)
    if len(order) != a.ndim:
        raise ValueError(f"transpose expects a vector of size {a.ndim}. But input(1) is a "
                         "vector of "
                         f"size {len(order)}")  # fmt: skip
    return dt.permute(dt.conj(a) if conjugate else a, [int(d) for d in order])


@op("ExpandDims", "input")
def expand_dims(input, axis):  # noqa: A002
    if not -input.ndim - 1 <= axis <= input.ndim:
        raise ValueError(
            f"Tried to expand dim index {axis} for tensor with {input.ndim} dimensions."
        )
    return input.unsqueeze(axis)


@op("Squeeze", "input")
def squeeze(input, axis=None):  # noqa: A002
    if axis is None or axis == []:
        return input.squeeze()
    dims = [d % max(input.ndim, 1) for d in (axis if isinstance(axis, (list, tuple)) else [axis])]
    for d in dims:
        if input.shape[d] != 1:
            raise ValueError(f"Can not squeeze dim[{d}], expected a dimension of 1, got "
                             f"{input.shape[d]}")  # fmt: skip
    return input.reshape([n for d, n in enumerate(input.shape) if d not in dims])


@op("ConcatV2", "values*")
def concat(values, axis):
    first = values[0].shape
    for i, t in enumerate(values[1:], 1):
        if len(t.shape) != len(first):
            raise ValueError(f"ConcatOp : Ranks of all input tensors should match: shape[0] = "
                             f"{_bare(first)} vs. shape[{i}] = {_bare(t.shape)}")  # fmt: skip
        for d, (a, b) in enumerate(zip(first, t.shape, strict=True)):
            if a != b and d != axis % len(first):
                raise ValueError(f"ConcatOp : Dimension {d} in both shapes must be equal: shape[0] "
                                 f"= {_bare(first)} vs. shape[{i}] = {_bare(t.shape)}")  # fmt: skip
    return dt.cat(values, dim=axis)


def _bare(sizes: Any) -> str:
    return "[" + ",".join(map(str, sizes)) + "]"


@op("Pack", "values*")
def stack(values, axis=0):
    for i, t in enumerate(values):
        if t.shape != values[0].shape:
            raise ValueError(
                "Shapes of all inputs must match: values[0].shape = "
                f"{_bare(values[0].shape)} != values[{i}].shape = {_bare(t.shape)}"
            )
    return dt.stack(values, dim=axis)


STACK.append(stack)


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str | None = "unstack"
) -> list:
    """The slices of ``value`` along ``axis``."""
    t = convert(value)
    return list(execute("Unpack", lambda v: tuple(x.clone() for x in v.unbind(axis)), [t], name))


@op("Split", "value", out=list)
def split(value, num_or_size_splits, axis=0, num=None):
    size = value.shape[axis]
    if isinstance(num_or_size_splits, int):
        if size % num_or_size_splits:
            raise ValueError(
                "Number of ways to split should evenly divide the split dimension, but got "
                f"split_dim {axis} (size = {size}) and num_split {num_or_size_splits}"
            )
        return tuple(dt.chunk(value, num_or_size_splits, axis))
    parts = [int(n) for n in num_or_size_splits]
    if -1 in parts:
        parts[parts.index(-1)] = size - sum(n for n in parts if n != -1)
    return tuple(dt.split(value, parts, axis))


@op("Tile", "input")
def tile(input, multiples):  # noqa: A002
    if len(multiples) != input.ndim:
        raise ValueError("Expected multiples argument to be a vector of length "
                         f"{input.ndim} but got length {len(multiples)}")  # fmt: skip
    return dt.tile(input, tuple(multiples))


@op("Repeat", "input")
def repeat(input, repeats, axis=None):  # noqa: A002
    counts = repeats if isinstance(repeats, int) else dt.tensor(repeats)
    return dt.repeat_interleave(input, counts, dim=axis)


@op("PadV2", "tensor")
def pad(tensor, paddings, mode="CONSTANT", constant_values=0):
    flat = [int(n) for pair in reversed(paddings) for n in pair]
    if mode.upper() == "CONSTANT":
        return dt.nn.functional.pad(tensor, flat, value=constant_values)
    return shapes.pad(tensor, paddings, mode.lower())


@op("ReverseV2", "tensor")
def reverse(tensor, axis):
    return dt.flip(tensor, axis if isinstance(axis, (list, tuple)) else [axis])


@op("Roll", "input")
def roll(input, shift, axis):  # noqa: A002
    return dt.roll(input, shift, axis)


@op("BroadcastTo", "input")
def broadcast_to(input, shape):  # noqa: A002
    return input.expand(_sizes(shape)).clone()


@op("Slice", "input_")
def slice(input_, begin, size):  # noqa: A001
    ends = [n if s == -1 else b + s for b, s, n in zip(begin, size, input_.shape, strict=True)]
    if any(e > n or b < 0 for b, e, n in zip(begin, ends, input_.shape, strict=True)):
        raise ValueError(f"Expected begin and size in [0, {list(input_.shape)}], but got begin "
                         f"{list(begin)} and size {list(size)}")  # fmt: skip
    for d, (b, e) in enumerate(zip(begin, ends, strict=True)):
        input_ = input_.narrow(d, b, e - b)
    return input_


def shape(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:  # noqa: A002
    """The sizes, as a tensor."""
    kind = inner_type(out_type)
    return execute("Shape", lambda v: dt.tensor(list(v.shape), dtype=kind), [convert(input)], name)


def size(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:  # noqa: A002
    """The number of elements, as a tensor."""
    kind = inner_type(out_type)
    return execute("Size", lambda v: dt.tensor(v.numel(), dtype=kind), [convert(input)], name)


def rank(input: Any, name: str | None = None) -> Any:  # noqa: A002
    """The number of dimensions, as a tensor."""
    return execute("Rank", lambda v: dt.tensor(v.ndim, dtype=dt.int32), [convert(input)], name)


def identity(input: Any, name: str | None = None) -> Any:  # noqa: A002
    """Another tensor of the same numbers."""
    t = convert(input)
    return execute(
        "Identity", lambda v: v.clone() if v.__class__ is not np.ndarray else v, [t], name
    )


def stop_gradient(input: Any, name: str | None = None) -> Any:  # noqa: A002
    """The numbers alone: gradients do not go through."""
    return execute("StopGradient", lambda v: v.detach(), [convert(input)], name)


@op("SelectV2", "condition", same="x y")
def where(condition, x=None, y=None):
    if x is None:
        return dt.argwhere(condition)
    return dt.where(condition, x, y)


@op("GatherV2", "params indices")
def gather(params, indices, validate_indices=None, axis=None, batch_dims=0):
    dim = batch_dims if axis is None else axis % params.ndim
    within(indices, params.shape[dim])
    if isinstance(params, np.ndarray):  # texts
        return params[(np.s_[:],) * dim + (indices.numpy(),)]
    return slots.take_rows(params, indices, dim, batch_dims)


def _place_of(i: int, sizes: tuple) -> list[int]:
    out: list[int] = []
    for n in reversed(sizes):
        out.insert(0, i % n)
        i //= n
    return out


def within(indices: Any, count: int) -> None:
    """Raise where one of ``indices`` is no row of ``count``."""
    for i, place in enumerate(indices.detach().reshape(-1).tolist()):
        if not 0 <= place < count:
            at = ",".join(map(str, _place_of(i, tuple(indices.shape))))
            where_ = f"indices[{at}]" if at else "indices"
            raise ValueError(f"{where_} = {place} is not in [0, {count})")


@op("GatherNd", "params indices")
def gather_nd(params, indices, batch_dims=0):
    return slots.gather_nd(params, indices, batch_dims)


def _scatter(word: str, kind: str, how: str) -> Any:
    def fn(tensor, indices, updates):
        return slots.put_nd(tensor, indices, updates, how)

    fn.__name__ = word
    return op(kind, "tensor indices", same="tensor updates")(fn)


@op("ScatterNd", "indices updates")
def scatter_nd(indices, updates, shape):
    return slots.put_nd(dt.zeros(_sizes(shape), dtype=updates.dtype), indices, updates, "add")


@op("BooleanMask", "tensor mask")
def boolean_mask(tensor, mask, axis=None):
    if axis:
        moved = tensor.movedim(axis, 0)
        return moved[mask].movedim(0, axis)
    return tensor[mask]


@op("OneHot", "indices")
def one_hot(indices, depth, on_value=None, off_value=None, axis=None, dtype=None):
    kind = inner_type(dtype or (convert(on_value).dtype if on_value is not None else "float32"))
    hit = indices.unsqueeze(-1 if axis is None or axis == -1 else axis)
    line = dt.arange(depth, dtype=indices.dtype)
    at = indices.ndim if axis is None or axis == -1 else axis
    line = line.reshape([depth if d == at else 1 for d in np.arange(indices.ndim + 1)])
    on, off = (1 if on_value is None else on_value), (0 if off_value is None else off_value)
    same = hit == line
    return dt.where(same, dt.full((), on, dtype=kind), dt.full((), off, dtype=kind))


Unique = namedtuple("Unique", ["y", "idx"])


@op("UniqueV2", "x", out=lambda found: Unique(*found))
def unique(x, out_idx="int32"):
    values, places = slots.unique_in_order(x)
    return values, places.to(inner_type(out_idx))


@op("Sort", "values")
def sort(values, axis=-1, direction="ASCENDING"):
    return dt.sort(values, dim=axis, descending=direction.upper() == "DESCENDING").values


@op("ArgSort", "values")
def argsort(values, axis=-1, direction="ASCENDING", stable=False):
    down = direction.upper() == "DESCENDING"
    return dt.sort(values, dim=axis, descending=down, stable=True).indices.to(dt.int32)


@op("SearchSorted", same="sorted_sequence values")
def searchsorted(sorted_sequence, values, side="left", out_type="int32"):
    found = dt.searchsorted(sorted_sequence, values, side=side)
    return found.to(inner_type(out_type))


@op("SequenceMask", "lengths")
def sequence_mask(lengths, maxlen=None, dtype="bool"):
    line = dt.arange(int(lengths.max()) if maxlen is None else maxlen, dtype=lengths.dtype)
    return (line < lengths.unsqueeze(-1)).to(inner_type(dtype))


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list:
    """Coordinates of a grid."""
    tensors = [convert(a) for a in args]
    made = execute("Meshgrid", lambda *v: tuple(g.clone() for g in dt.meshgrid(*v,
        indexing=indexing)),
                   tensors, name)  # fmt: skip
    return list(made)


_SCATTERS = {"update": "update", "add": "add", "sub": "sub", "min": "amin", "max": "amax"}
NAMES: dict[str, Any] = {
    **{n: globals()[n] for n in """constant convert_to_tensor fill eye range linspace reshape
    transpose expand_dims squeeze concat stack unstack split tile repeat pad reverse roll
    broadcast_to slice shape size rank identity stop_gradient where gather gather_nd scatter_nd
    boolean_mask one_hot unique sort argsort searchsorted sequence_mask meshgrid""".split()},
    "zeros": _filled("zeros", "Fill", 0), "ones": _filled("ones", "Fill", 1),
    "zeros_like": _like("zeros_like", "ZerosLike", dt.zeros_like),
    "ones_like": _like("ones_like", "OnesLike", dt.ones_like),
    "is_tensor": is_tensor,
    **{f"tensor_scatter_nd_{w}": _scatter(f"tensor_scatter_nd_{w}", f"TensorScatter{w.title()}",
        how)
       for w, how in _SCATTERS.items()},
}  # fmt: skip
