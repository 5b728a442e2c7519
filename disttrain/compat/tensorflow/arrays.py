"""Making, arranging, reading and putting together of tensors: what stands at TensorFlow's top."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces, ranks, slots
from ..tables import passing
from .dispatch import execute
from .math import CLIPS, LINALG, made
from .tensor import GRAPH, STACK, convert, is_tensor, wrap
from .types import DType, TensorShape, as_dtype


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = "Const") -> Any:
    """A tensor of ``value``, filled up to ``shape`` where it is one number."""
    t, graph = convert(value, dtype), GRAPH.get()
    if shape is not None:
        t = wrap(pieces.filled_up(t._value, tuple(TensorShape(shape))))
    return t if graph is None else graph.inside(t, name or "Const")


def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Any:
    hint: DType | None = None if dtype_hint is None else as_dtype(dtype_hint)
    return convert(value, dtype, hint)


def _filled(word: str, value: int) -> Any:
    def function(shape: Any, dtype: Any, name: str | None) -> Any:
        kind = as_dtype(dtype)
        one = b"" if kind.inner is None else np.array(value, kind.as_numpy_dtype)
        return NAMES["fill"](shape, convert(one), name=name)

    return passing(word, "shape dtype='float32' name=None _layout=None", function)


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list:
    """Coordinates of a grid."""
    grid = functools.partial(pieces.meshgrid, indexing=indexing)
    return list(execute("Meshgrid", grid, [convert(a) for a in args], name))


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """The rows of ``params`` at ``ids``."""
    found = NAMES["gather"](params, ids, name=name)
    return found if max_norm is None else CLIPS["clip_by_norm"](found, max_norm, -1)


Unique = namedtuple("Unique", ["y", "idx"])
SCATTERS = {"update": "update", "add": "add", "sub": "sub", "min": "amin", "max": "amax"}
NAMES: dict[str, Any] = {
    **made(f"""
    - range=range_of | start! limit!=None delta!=None dtype@=None;
    - fill=filled | dims value! _layout=None; - linspace:LinSpace | start~ stop~ num axis=0;
    - reshape | tensor! shape; - transpose | a! perm=None conjugate=False;
    - expand_dims | input! axis; - squeeze | input! axis=None;
    - concat:ConcatV2 | values* axis; - stack:Pack | values* axis=0;
    - unstack:Unpack | value! _num=None axis=0;
    - split | value! num_or_size_splits axis=0 _num=None;
    - tile | input! multiples; - repeat | input! repeats axis=None;
    - pad:PadV2 | tensor! paddings mode='CONSTANT' constant_values=0;
    - reverse:ReverseV2 | tensor! axis; - roll | input! shift axis;
    - broadcast_to | input! shape; - slice=slice_at | input_! begin size;
    - shape size | input! out_type@='int32'; - rank stop_gradient identity | input!;
    - where:SelectV2 | condition! x~=None y~=None;
    - gather:GatherV2=take | params! indices! _validate_indices=None axis=None batch_dims=0;
    - gather_nd | params! indices! batch_dims=0; - scatter_nd | indices! updates! shape;
    - {" ".join(f"tensor_scatter_nd_{w}:TensorScatter{w.title()}" for w in SCATTERS)}
      | tensor~ indices! updates~;
    - boolean_mask | tensor! mask! axis=None; - unique:UniqueV2 | x! out_idx@='int32';
    - sort | values! axis=-1 direction='ASCENDING';
    - argsort:ArgSort | values! axis=-1 direction='ASCENDING' _stable=False;
    - searchsorted:SearchSorted | sorted_sequence~ values~ side='left' out_type@='int32';
    - sequence_mask | lengths! maxlen=None dtype@='bool';
    - one_hot | indices! depth on_value!=None off_value!=None axis=None dtype@=None;
    - zeros_like ones_like | input! dtype@=None _name=None _layout=None""",
    (pieces, slots, ranks, dt), outs={
        "unstack": list, "split": list, "unique": lambda found: Unique(*found)},
    unique=slots.unique_in_order, stop_gradient=lambda v: v.detach(),
    identity=lambda v: v.clone() if hasattr(v, "clone") else v,
    rank=lambda v: dt.tensor(v.ndim, dtype=dt.int32),
    **{f"{w}_like": lambda x, kind, n=n: pieces.alike(x, n, kind)
       for n, w in enumerate(("zeros", "ones"))},
    **{f"tensor_scatter_nd_{w}": functools.partial(slots.put_nd, how=how)
       for w, how in SCATTERS.items()}),
    "eye": LINALG["eye"], "zeros": _filled("zeros", 0), "ones": _filled("ones", 1),
    **{f.__name__: f for f in (constant, convert_to_tensor, meshgrid, is_tensor)},
}  # fmt: skip
stack, unstack, gather, identity = (NAMES[w] for w in ("stack", "unstack", "gather", "identity"))
STACK.append(stack)
