"""Making, arranging, reading and putting together of tensors: what stands at TensorFlow's top."""

from __future__ import annotations

import math as numbers
from collections import namedtuple
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces, slots
from .dispatch import execute, op, plain, table
from .math import cast
from .tensor import GRAPH, STACK, convert, is_tensor, wrap
from .types import DType, TensorShape, as_dtype


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = "Const") -> Any:
    """A tensor of ``value``, filled up to ``shape`` where it is one number."""
    t = convert(value, dtype)
    if shape is not None:
        t = _shaped(t, tuple(TensorShape(shape)))
    graph = GRAPH.get()
    return t if graph is None else graph.inside(t, name or "Const")


def _shaped(t: Any, sizes: tuple) -> Any:
    count, wanted = numbers.prod(t.shape), numbers.prod(sizes)
    if count == wanted:
        return wrap(t._value.reshape(sizes))
    if t.ndim == 0:
        return wrap(t._value.expand(sizes).clone())
    raise TypeError(
        f"Eager execution of tf.constant with unsupported shape. Tensor {t!r} (converted from "
        f"{t.numpy()!r}) has {count} elements, but got `shape` {sizes} with {wanted} elements)."
    )


def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Any:
    hint: DType | None = None if dtype_hint is None else as_dtype(dtype_hint)
    return convert(value, dtype, hint)


fill = op("fill", "Fill", pieces.filled, "dims value! _layout=None")


def _filled(word: str, value: int) -> Any:
    def function(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None):
        kind = as_dtype(dtype)
        if kind.inner is None:
            return convert(np.full(pieces.sizes_of(plain(shape)), b"", object))
        return fill(shape, bool(value) if kind.is_bool else convert(value, kind), name=name)

    function.__name__ = word
    return function


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"):  # noqa: A001
    """Numbers from ``start`` (0) to before ``limit`` in steps of ``delta``."""
    if limit is None:
        start, limit = 0, start
    parts = [convert(x) if dtype is None else cast(x, dtype) for x in (start, limit, delta)]
    order = ("int32", "int64", "bfloat16", "float16", "float32", "float64")
    wide = max((p.dtype.name for p in parts), key=lambda n: order.index(n) if n in order else 0)
    return execute("Range", pieces.arange, [cast(p, wide) for p in parts], name)


def identity(input: Any, name: str | None = None) -> Any:  # noqa: A002
    """Another tensor of the same numbers."""
    t = convert(input)
    return execute("Identity", lambda v: v.clone() if t.dtype.inner else v, [t], name)


def one_hot(indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
            axis: Any = None, dtype: Any = None, name: str | None = None) -> Any:  # fmt: skip
    """Rows that are ``on_value`` at one place each."""
    kind = dtype or (convert(on_value).dtype if on_value is not None else "float32")
    return _one_hot(indices, depth, on_value, off_value, axis, kind, name)


_one_hot = op("one_hot", "OneHot", pieces.one_hot,
              "indices! depth on_value=None off_value=None axis=None dtype@='float32'")  # fmt: skip


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list:
    """Coordinates of a grid."""

    def call(*values: Any) -> tuple:
        return tuple(g.clone() for g in dt.meshgrid(*values, indexing=indexing))

    return list(execute("Meshgrid", call, [convert(a) for a in args], name))


Unique = namedtuple("Unique", ["y", "idx"])


def _unique(x: Any, kind: Any) -> tuple:
    values, places = slots.unique_in_order(x)
    return values, places.to(kind)


def _down(direction: str) -> bool:
    return direction.upper() == "DESCENDING"


SCATTERS = {"update": "update", "add": "add", "sub": "sub", "min": "amin", "max": "amax"}
_ROWS: dict[str, tuple] = {
    "eye": ("Eye", pieces.eyes,
            "num_rows num_columns=None batch_shape=None dtype@='float32'"),
    "linspace": ("LinSpace", pieces.linspace, "start~ stop~ num axis=0"),
    "reshape": ("Reshape", pieces.reshape, "tensor! shape"),
    "transpose": ("Transpose", pieces.transpose, "a! perm=None conjugate=False"),
    "expand_dims": ("ExpandDims", pieces.expand_dims, "input! axis"),
    "squeeze": ("Squeeze", pieces.squeeze, "input! axis=None"),
    "concat": ("ConcatV2", pieces.concat, "values* axis"),
    "stack": ("Pack", pieces.stack, "values* axis=0"),
    "unstack": ("Unpack", lambda v, n, axis: pieces.unstack(v, axis), "value! num=None axis=0",
                None, list),
    "split": ("Split", pieces.split, "value! num_or_size_splits axis=0 _num=None", None, list),
    "tile": ("Tile", pieces.tile, "input! multiples"),
    "repeat": ("Repeat", pieces.repeat, "input! repeats axis=None"),
    "pad": ("PadV2", pieces.pad, "tensor! paddings mode='CONSTANT' constant_values=0"),
    "reverse": ("ReverseV2", lambda x, axis: dt.flip(
        x, axis if isinstance(axis, (list, tuple)) else [axis]), "tensor! axis"),
    "roll": ("Roll", dt.roll, "input! shift axis"),
    "broadcast_to": ("BroadcastTo", lambda x, shape: x.expand(pieces.sizes_of(shape)).clone(),
                     "input! shape"),
    "slice": ("Slice", pieces.slice_at, "input_! begin size"),
    "shape": ("Shape", lambda v, kind: dt.tensor(list(v.shape), dtype=kind),
              "input! out_type@='int32'"),
    "size": ("Size", lambda v, kind: dt.tensor(numbers.prod(v.shape), dtype=kind),
             "input! out_type@='int32'"),
    "rank": ("Rank", lambda v: dt.tensor(v.ndim, dtype=dt.int32), "input!"),
    "stop_gradient": ("StopGradient", lambda v: v.detach(), "input!"),
    "where": ("SelectV2", lambda c, x, y: dt.argwhere(c) if x is None else dt.where(c, x, y),
              "condition! x~=None y~=None"),
    "gather": ("GatherV2", pieces.take,
               "params! indices! _validate_indices=None axis=None batch_dims=0"),
    "gather_nd": ("GatherNd", slots.gather_nd, "params! indices! batch_dims=0"),
    "scatter_nd": ("ScatterNd", lambda at, rows, shape: slots.put_nd(
        dt.zeros(pieces.sizes_of(shape), dtype=rows.dtype), at, rows, "add"),
        "indices! updates! shape"),
    **{f"tensor_scatter_nd_{w}": (f"TensorScatter{w.title()}", lambda x, at, rows, how=how:
                                  slots.put_nd(x, at, rows, how), "tensor~ indices! updates~")
       for w, how in SCATTERS.items()},
    "boolean_mask": ("BooleanMask", pieces.boolean_mask, "tensor! mask! axis=None"),
    "unique": ("UniqueV2", _unique, "x! out_idx@='int32'", None, lambda found: Unique(*found)),
    "sort": ("Sort", lambda x, axis, way: dt.sort(x, dim=axis, descending=_down(way)).values,
             "values! axis=-1 direction='ASCENDING'"),
    "argsort": ("ArgSort", lambda x, axis, way: dt.sort(
        x, dim=axis, descending=_down(way), stable=True).indices.to(dt.int32),
        "values! axis=-1 direction='ASCENDING' _stable=False"),
    "searchsorted": ("SearchSorted", lambda line, x, side, kind: dt.searchsorted(
        line, x, side=side).to(kind), "sorted_sequence~ values~ side='left' out_type@='int32'"),
    "sequence_mask": ("SequenceMask", pieces.sequence_mask, "lengths! maxlen=None dtype@='bool'"),
    **{f"{w}_like": (f"{w.title()}Like", lambda x, kind, fn=fn: fn(x.detach(), dtype=kind),
                     "input! dtype@=None _name=None _layout=None")
       for w, fn in (("zeros", dt.zeros_like), ("ones", dt.ones_like))},
}  # fmt: skip
NAMES: dict[str, Any] = {
    **table(_ROWS), "zeros": _filled("zeros", 0), "ones": _filled("ones", 1),
    **{f.__name__: f for f in (constant, convert_to_tensor, fill, range, identity, one_hot,
                               meshgrid, is_tensor)},
}  # fmt: skip
stack, unstack, gather = (NAMES[word] for word in ("stack", "unstack", "gather"))
STACK.append(stack)
