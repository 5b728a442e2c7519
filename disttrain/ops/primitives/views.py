"""Primitives that rearrange: reshape, permute, expand, slicing, joining, padding.

A result shares memory with its input where numpy can; the gate notes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.fused import copies
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...symbolic import is_symbolic, sliced
from ..declare import primitive


def matrix_samples(**params: object) -> Any:
    """Samples for the tests of all rules: one 3 x 4 matrix and these parameters."""
    return lambda rng: [((rng.normal(size=(3, 4)),), params)]


Shift = Callable[[dict, int], dict]  # what parameters become for a batch of this size


def front(a: Value, dim: int | None) -> Any:
    """``a`` with its batch dimension (where it has one) in front."""
    if not dim:
        return a
    return permute(a, dims=(dim, *(i for i in range(len(a.shape)) if i != dim)))


class Batched:
    """The batch rule of a primitive of one tensor: batch dimension in front, ``shift(params,
    size)`` for what the parameters become."""

    def __init__(self, prim_of: Callable[[], Primitive], shift: Shift) -> None:
        self.prim_of, self.shift = prim_of, shift

    def __call__(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        out = self.prim_of()(front(args[0], dims[0]), **{**params, **self.shift(params, size)})
        return out, (0,) * len(out) if isinstance(out, tuple) else 0


def up(*names: str) -> Shift:
    """Dimension numbers one higher."""

    def shift(params: dict, size: int) -> dict:
        return {
            n: tuple(d + 1 for d in params[n]) if isinstance(params[n], tuple) else params[n] + 1
            for n in names
        }

    return shift


def _reshaped(a: Value, shape: tuple) -> tuple:
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape = tuple(math.prod(a.shape) // max(known, 1) if n == -1 else n for n in shape)
    if math.prod(shape) != math.prod(a.shape):
        raise ValueError(f"cannot reshape {math.prod(a.shape)} elements into {shape}")
    return tuple(shape), a.dtype


reshape: Primitive = primitive(
    "reshape", copies.reshaped, "a",
    vjp={"a": lambda g, a_shape: reshape(g, shape=a_shape)},
    jvp="linear", shape=_reshaped, view=True, samples=matrix_samples(shape=(2, 6)),
    batch=Batched(lambda: reshape, lambda p, n: {"shape": (n, *p["shape"])}),
)  # fmt: skip


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


permute: Primitive = primitive(
    "permute", lambda a, dims: a.transpose(dims), "a",
    vjp={"a": lambda g, dims: permute(g, dims=_inverse(dims))},
    jvp="linear", shape=lambda a, dims: (tuple(a.shape[d] for d in dims), a.dtype), view=True,
    samples=lambda rng: [((rng.normal(size=(2, 3, 4)),), {"dims": (2, 0, 1)})],
    batch=Batched(lambda: permute, lambda p, n: {"dims": (0, *(d + 1 for d in p["dims"]))}),
)  # fmt: skip


def _expand_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, shape = front(args[0], dims[0]), params["shape"]
    own = tuple(a.shape)[1:]
    aligned = reshape(a, shape=(size, *(1,) * (len(shape) - len(own)), *own))
    return expand(aligned, shape=(size, *shape)), 0


def _expand(a: np.ndarray, shape: tuple) -> Any:
    """``np.broadcast_to``, at a third of its cost where memory is one block."""
    if a.dtype.kind == "V" or not a.size or not a.flags.c_contiguous:
        return np.broadcast_to(a, shape)
    lead = len(shape) - a.ndim
    if lead < 0:
        return np.broadcast_to(a, shape)  # which says what is wrong
    strides = []
    for have, want, stride in zip(a.shape, shape[lead:], a.strides):
        if have != want and have != 1:
            return np.broadcast_to(a, shape)  # which says what is wrong
        strides.append(stride if have == want else 0)
    for i in range(lead - 1, -1, -1):  # what is not repeated has the stride that is usual there
        behind = shape[i + 1] * strides[0] if i + 1 < len(shape) else a.itemsize
        strides.insert(0, behind if shape[i] == 1 else 0)
    out = np.ndarray(shape, a.dtype, a, 0, strides)
    out.setflags(write=False)
    return out


expand: Primitive = primitive(
    "expand", _expand, "a",
    vjp={"a": lambda g: g},  # the engine sums over what was broadcast
    jvp="linear", shape=lambda a, shape: (tuple(shape), a.dtype), view=True,
    samples=lambda rng: [((rng.normal(size=(3, 1)),), {"shape": (2, 3, 4)})],
    batch=_expand_batch,
)  # fmt: skip


def _getitem(a: RawArray | np.ndarray, index: tuple) -> Any:
    # A trailing Ellipsis makes numpy give a 0-d view where it would give a scalar.
    return a[index] if Ellipsis in index else a[(*index, Ellipsis)]


def _indexed(a: Value, index: tuple) -> tuple:
    if is_symbolic((*a.shape, *index)):
        return _symbolic(a.shape, index), a.dtype
    return np.broadcast_to(np.zeros((), np.int8), a.shape)[index].shape, a.dtype


def _symbolic(shape: tuple, index: tuple) -> tuple:
    """The shape of what a basic index takes, of sizes that may change."""
    used = sum(i is not None and i is not Ellipsis for i in index)
    index = index if any(i is Ellipsis for i in index) else (*index, Ellipsis)
    out, dim = list[Any](), 0
    for item in index:
        if item is None:
            out.append(1)
        elif item is Ellipsis:
            out += shape[dim : dim + len(shape) - used]
            dim += len(shape) - used
        else:
            if item.__class__ is slice:
                out.append(sliced(item, shape[dim])[1])
            dim += 1
    return tuple(out)


getitem: Primitive = primitive(
    "getitem", _getitem, "a",
    vjp={"a": lambda g, index, a_shape: embed(g, index=index, shape=a_shape)},
    jvp="linear", shape=_indexed, view=True, samples=matrix_samples(index=(slice(0, 2), 1)),
    batch=Batched(lambda: getitem, lambda p, n: {"index": (slice(None), *p["index"])}),
)  # fmt: skip


def _embed(a: np.ndarray, index: tuple, shape: tuple) -> Any:
    out = np.zeros(shape, a.dtype)
    out[index] = a
    return out


embed: Primitive = primitive(
    "embed", _embed, "a", vjp={"a": lambda g, index: getitem(g, index=index)},
    jvp="linear", shape=lambda a, index, shape: (tuple(shape), a.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(2,)),), {"index": (slice(0, 2), 1), "shape": (3, 4)})
    ],
    batch=Batched(
        lambda: embed,
        lambda p, n: {"index": (slice(None), *p["index"]), "shape": (n, *p["shape"])},
    ),
)  # fmt: skip

flip: Primitive = primitive(
    "flip", lambda a, dims: np.flip(a, dims).copy(), "a",
    vjp={"a": lambda g, dims: flip(g, dims=dims)},
    jvp="linear", shape=lambda a, dims: (a.shape, a.dtype), samples=matrix_samples(dims=(1,)),
    batch=Batched(lambda: flip, up("dims")),
)  # fmt: skip

roll: Primitive = primitive(
    "roll", lambda a, shifts, dims: np.roll(a, shifts, dims), "a",
    vjp={"a": lambda g, shifts, dims: roll(g, shifts=tuple(-s for s in shifts), dims=dims)},
    jvp="linear", shape=lambda a, shifts, dims: (a.shape, a.dtype),
    samples=matrix_samples(shifts=(1,), dims=(1,)),
    batch=Batched(lambda: roll, up("dims")),
)  # fmt: skip

tri: Primitive = primitive(
    "tri", lambda a, k, upper: np.triu(a, k) if upper else np.tril(a, k), "a",
    vjp={"a": lambda g, k, upper: tri(g, k=k, upper=upper)},
    jvp="linear", shape=lambda a, k, upper: (a.shape, a.dtype),
    samples=matrix_samples(k=0, upper=False),
    batch=Batched(lambda: tri, lambda p, n: {}),
)  # fmt: skip


def _inside(widths: tuple, padded: tuple) -> tuple:
    return tuple(slice(lo, n - hi) for (lo, hi), n in zip(widths, padded, strict=True))


pad_constant: Primitive = primitive(
    "pad_constant", lambda a, widths, value=0.0: np.pad(a, widths, constant_values=value), "a",
    vjp={"a": lambda g, widths: getitem(g, index=_inside(widths, tuple(g.shape)))},
    jvp=lambda primals, tangents, params: pad_constant(tangents[0], **{**params, "value": 0.0}),
    shape=lambda a, widths, value=0.0: (
        tuple(n + lo + hi for n, (lo, hi) in zip(a.shape, widths, strict=True)),
        a.dtype,
    ),
    samples=matrix_samples(widths=((1, 0), (0, 2))),
    batch=Batched(lambda: pad_constant, lambda p, n: {"widths": ((0, 0), *p["widths"])}),
)  # fmt: skip


def _cat_rule(g: object, dim: int, sizes: tuple, needs: tuple) -> tuple:
    grads, start = [], 0
    for size, need in zip(sizes, needs, strict=True):
        index = (slice(None),) * dim + (slice(start, start + size),)
        grads.append(getitem(g, index=index) if need else None)
        start += size
    return tuple(grads)


def _cat_shape(*arrays: Shaped, dim: int, sizes: tuple) -> tuple:
    shape = list(arrays[0].shape)
    shape[dim] = sum(sizes)
    return tuple(shape), arrays[0].dtype


def _cat_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    parts = []
    for a, d in zip(args, dims, strict=True):
        if d is None:
            shape = tuple(a.shape)
            a = expand(reshape(a, shape=(1, *shape)), shape=(size, *shape))
        parts.append(front(a, d))
    return cat(*parts, dim=params["dim"] + 1, sizes=params["sizes"]), 0


cat: Primitive = primitive(
    "cat", lambda *arrays, dim, sizes: np.concatenate(arrays, dim), "", vjp=_cat_rule,
    jvp="linear", shape=_cat_shape,
    samples=lambda rng: [
        ((rng.normal(size=(3, 2)), rng.normal(size=(3, 4))), {"dim": 1, "sizes": (2, 4)})
    ],
    batch=_cat_batch,
)  # fmt: skip


def _pieces(a: RawArray | np.ndarray, dim: int, sizes: tuple) -> tuple:
    ahead, out, start = (slice(None),) * dim, [], 0
    for n in sizes:
        out.append(a[(*ahead, slice(start, start + n))])
        start += n
    return tuple(out)


split: Primitive = primitive(
    "split", _pieces, "a",
    vjp=lambda g, dim, sizes: (cat(*g, dim=dim, sizes=sizes),),
    jvp="linear", multi=True, view=True,
    shape=lambda a, dim, sizes: [
        ((*a.shape[:dim], n, *a.shape[dim + 1 :]), a.dtype) for n in sizes
    ],
    samples=matrix_samples(dim=1, sizes=(1, 3)),
    batch=Batched(lambda: split, up("dim")),
)  # fmt: skip


def _piece(params: dict, i: int) -> tuple:
    start = sum(params["sizes"][:i])
    place = slice(start, start + params["sizes"][i])
    return getitem, {"index": (slice(None),) * params["dim"] + (place,)}


split.part = _piece


def _unbound(a: Value, dim: int) -> tuple:
    ahead = (slice(None),) * dim
    return tuple(a[(*ahead, i, Ellipsis)] for i in range(a.shape[dim]))


def _unbind_rule(g: tuple, dim: int) -> tuple:
    shape = tuple(g[0].shape)
    rows = [reshape(x, shape=(*shape[:dim], 1, *shape[dim:])) for x in g]
    return (cat(*rows, dim=dim, sizes=(1,) * len(rows)),)


unbind: Primitive = primitive(
    "unbind", _unbound, "a", vjp=_unbind_rule, jvp="linear", multi=True, view=True,
    shape=lambda a, dim: [(a.shape[:dim] + a.shape[dim + 1 :], a.dtype)] * a.shape[dim],
    samples=matrix_samples(dim=1),
    batch=Batched(lambda: unbind, up("dim")),
)  # fmt: skip
unbind.part = lambda params, i: (
    getitem,
    {"index": (*(slice(None),) * params["dim"], i, Ellipsis)},
)
