"""Collectives that backward goes through: linear maps between ranks, each with its adjoint.

A collective is one linear map over the values of all ranks, so its derivative is another one:

    all_reduce <-> all_reduce        broadcast <-> reduce        all_to_all <-> all_to_all
    all_gather <-> reduce_scatter    gather <-> scatter          send <-> recv

The adjoint is applied as an operation of its own, so derivatives of any order follow. Every rank
of the group must run backward through its part, as it must have run forward. Reductions that are
not linear (product, minimum, maximum) are a gather and the ordinary operation.

Functions take a group of ``comm``; ``root`` and peers are ranks *in that group*. Results are new
tensors, or lie in the arrays given as ``into``. Knows no default group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...comm.calls.reduce_ops import ReduceOp
from ...core.gate import Primitive
from ...core.tensor import Tensor
from ...core.tracer import Tracer
from ...errors import DeviceError, ShapeError
from ..declare import declare_apart
from ..primitives.batching import fronted
from ..primitives.views import permute, reshape
from .reduce import amax, amin, prod
from .views.join import stack

SUM = ReduceOp.SUM
_LINEAR = ("SUM", "AVG", "PREMUL_SUM")
_LOCAL: dict[str, Callable[[Tensor, int], Tensor]] = {"PRODUCT": prod, "MIN": amin, "MAX": amax}


class How(NamedTuple):
    """What a collective is told beside its tensors. ``shapes``: of the results, where they differ
    from the inputs'; ``splits``: rows from and to each rank; ``keep``: who is not the root of a
    reduce keeps its values (as the derivative sees it, it has zeros); ``batch``: dimensions of
    batches in front; ``into``: the arrays of the results, where these are given."""

    op: ReduceOp = SUM
    root: int = 0
    shapes: tuple = ()
    splits: tuple = (None, None)
    tag: int = 0
    keep: bool = False
    batch: tuple = ()
    into: Any = None


def _empty(group: Any, like: np.ndarray, shape: Sequence[int] | None = None) -> np.ndarray:
    shape = like.shape if shape is None else tuple(shape)
    if like.__class__ is np.ndarray:
        return group.empty(shape, like.dtype)
    return np.empty_like(like, shape=shape)  # where it lies


def _copied(group: Any, x: np.ndarray) -> np.ndarray:
    out = _empty(group, x)
    out[...] = x
    return out


def _outs(group: object, how: How, like: np.ndarray, shapes: Sequence[tuple]) -> list[np.ndarray]:
    """The arrays that receive."""
    return how.into or [_empty(group, like, shape) for shape in shapes]


# --- what moves ----------------------------------------------------------------------------------


def _all_reduce(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    out = _copied(group, x)
    group.all_reduce(out, how.op)
    return out


def _reduce(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    out = _copied(group, x)
    group.reduce(out, how.root, how.op)
    if group.rank != how.root and not how.keep:
        out[...] = 0
    return out


def _broadcast(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    out = _copied(group, x)
    group.broadcast(out, how.root)
    return out


def _all_gather(group: Any, how: How, x: np.ndarray) -> tuple:
    outs = _outs(group, how, x, [x.shape] * group.size)
    group.all_gather(outs, x)
    return tuple(outs)


def _all_gather_single(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    (out,) = _outs(group, how, x, [_times(x.shape, group.size)])
    group.all_gather_single(out, x)
    return out


def _reduce_scatter(group: Any, how: How, *xs: np.ndarray) -> np.ndarray:
    (out,) = _outs(group, how, xs[0], [xs[group.rank].shape])
    group.reduce_scatter(out, xs, how.op)
    return out


def _reduce_scatter_single(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    (out,) = _outs(group, how, x, [_part(x.shape, group.size)])
    group.reduce_scatter_single(out, x, how.op)
    return out


def _all_to_all(group: Any, how: How, *xs: np.ndarray) -> tuple:
    outs = _outs(group, how, xs[0], how.shapes[: group.size])
    group.all_to_all(outs, xs)
    return tuple(outs)


def _all_to_all_single(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    (out,) = _outs(group, how, x, how.shapes[:1])
    group.all_to_all_single(out, x, *how.splits)
    return out


def _gather(group: Any, how: How, x: np.ndarray) -> tuple:
    outs = [_empty(group, x) for _ in range(group.size)]
    group.gather(x, outs if group.rank == how.root else None, how.root)
    if group.rank != how.root:
        for out in outs:
            out[...] = 0
    return tuple(outs)


def _scatter(group: Any, how: How, *xs: np.ndarray) -> np.ndarray:
    out = _empty(group, xs[0])
    group.scatter(out, xs if group.rank == how.root else None, how.root)
    return out


def _send(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    group.send(x, how.root, how.tag)
    return np.zeros_like(x, shape=how.batch)


def _recv(group: Any, how: How, after: np.ndarray) -> np.ndarray:
    (out,) = how.into or [_empty(group, after, how.shapes[0])]
    group.recv(out, how.root, how.tag)
    return out


def _own_row(group: Any, how: How, x: np.ndarray) -> np.ndarray:
    return _copied(group, x[group.rank : group.rank + 1])


def _times(shape: tuple, n: int) -> tuple:
    return (n, *shape[1:]) if not shape else (shape[0] * n, *shape[1:])


def _part(shape: tuple, n: int) -> tuple:
    if not shape or shape[0] % n:
        raise ShapeError(
            f"reduce_scatter_single: an input of shape {list(shape)} was given; needed is a first "
            f"dimension that {n} ranks divide."
        )
    return (shape[0] // n, *shape[1:])


# --- each with its adjoint -----------------------------------------------------------------------


class _Verb:
    """A collective on Tensors (or, where a derivative is computed, on arrays)."""

    def __init__(self, prim: Primitive) -> None:
        self.prim = prim

    def on(self, group: Any, how: How, *xs: Tensor | np.ndarray) -> Any:
        """Run it, recorded."""
        for x in xs:
            _note(self.prim.name, x)
        return self.prim(*xs, group=group, how=how)


def _note(name: str, x: Tensor | np.ndarray) -> None:
    if isinstance(x, Tensor) and x.is_meta:
        raise DeviceError(f"{name}: a tensor on the meta device has no data to communicate")


def _declare(
    name: str, move: Callable, adjoint: Callable, batch: Callable, several: bool = False,
    shape: Callable | None = None,
) -> _Verb:  # fmt: skip
    """The collective that does ``move(group, how, *arrays)``. ``adjoint(group, how, *cotangents)``
    gives the cotangents of the inputs, through collectives of this file; ``batch`` is its rule
    for a batch (see ``ops.primitives.batching``); ``several`` results come as a tuple;
    ``shape(group, how, shape)``: of the result of one input."""

    def forward(*xs: np.ndarray, group: Any, how: How) -> Any:
        return move(group, how, *xs)

    def rule(g: Tensor | np.ndarray | tuple, group: Any, how: How) -> tuple:
        gs = g if several else (g,)
        grads = adjoint(group, how._replace(into=None), *gs)
        return grads if isinstance(grads, tuple) else (grads,)

    def jvp(primals: tuple, tangents: tuple, params: dict) -> Any:
        pairs = zip(primals, tangents, strict=True)
        given = [x.detach() * 0 if t is None else t for x, t in pairs]
        return prim(*given, group=params["group"], how=params["how"]._replace(into=None))

    def batched(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        how = params["how"]._replace(into=None)
        rows = [fronted(x, d, size) for x, d in zip(args, dims, strict=True)]
        out, dim = batch(prim, rows, params["group"], how, size)
        return out, (dim,) * len(out) if several else dim

    prim = declare_apart(name, forward, "", rule)
    prim.jvp, prim.batch, prim.multi, prim.kinds = jvp, batched, several, False
    prim.outward = True
    if shape is not None:
        prim.shape = lambda x, group, how: (tuple(shape(group, how, x.shape)), x.dtype)
    return _Verb(prim)


# What follows are rules for rows that have the batch in front, on every rank.


def _alike(prim: Primitive, rows: list, group: object, how: How, size: int) -> tuple:
    """Results have shapes that follow from those of the inputs, whatever dimensions these have."""
    shapes = tuple([(size, *shape) for shape in how.shapes])
    how = how._replace(shapes=shapes, batch=(size, *how.batch))
    return prim(*rows, group=group, how=how), 0


def _along_rows(prim: Primitive, rows: list, group: object, how: How, size: int) -> tuple:
    """Dimension 0 is cut or joined: the batch goes behind it."""
    (x,) = rows
    shapes = tuple([(shape[0], size, *shape[1:]) for shape in how.shapes])
    rest = tuple(range(2, len(x.shape)))
    x = permute(x, dims=(1, 0, *rest)) if len(x.shape) > 1 else reshape(x, shape=(1, size))
    return prim(x, group=group, how=how._replace(shapes=shapes)), 1


def _same(group: object, how: How, shape: tuple) -> tuple:
    return shape


def _gathered(group: Any, how: How, shape: tuple) -> tuple:
    return _times(shape, group.size)


def _weighed(group: Any, op: ReduceOp, g: Tensor | np.ndarray) -> Any:
    """``g`` times what a linear reduction multiplies each rank's values by."""
    if op.factor is not None:
        return g * op.factor
    return g / group.size if op.name == "AVG" else g


AllReduce: _Verb = _declare(
    "all_reduce", _all_reduce, lambda group, how, g: AllReduce.on(group, how, g), _alike,
    shape=_same,
)  # fmt: skip
Reduce: _Verb = _declare(
    "reduce_to",
    _reduce,
    lambda group, how, g: _weighed(group, how.op, Broadcast.on(group, how, g)),
    _alike,
)
Broadcast: _Verb = _declare(
    "broadcast_from",
    _broadcast,
    lambda group, how, g: Reduce.on(group, how._replace(op=SUM, keep=False), g),
    _alike,
)
AllGather: _Verb = _declare(
    "all_gather",
    _all_gather,
    lambda group, how, *gs: ReduceScatter.on(group, how, *gs),
    _alike,
    several=True,
)
ReduceScatter: _Verb = _declare(
    "reduce_scatter",
    _reduce_scatter,
    lambda group, how, g: AllGather.on(group, how._replace(op=SUM), _weighed(group, how.op, g)),
    _alike,
)
AllGatherSingle: _Verb = _declare(
    "all_gather_single",
    _all_gather_single,
    lambda group, how, g: ReduceScatterSingle.on(group, how, g),
    _along_rows,
    shape=_gathered,
)
ReduceScatterSingle: _Verb = _declare(
    "reduce_scatter_single",
    _reduce_scatter_single,
    lambda group, how, g: AllGatherSingle.on(
        group, how._replace(op=SUM), _weighed(group, how.op, g)
    ),
    _along_rows,
    shape=lambda group, how, shape: _part(shape, group.size),
)
AllToAll: _Verb = _declare(
    "all_to_all",
    _all_to_all,
    lambda group, how, *gs: AllToAll.on(group, _turned(how, len(gs)), *gs),
    _alike,
    several=True,
)
AllToAllSingle: _Verb = _declare(
    "all_to_all_single",
    _all_to_all_single,
    lambda group, how, g: AllToAllSingle.on(group, _turned(how, 1), g),
    _along_rows,
    shape=lambda group, how, shape: how.shapes[0],
)
Gather: _Verb = _declare(
    "gather_to",
    _gather,
    lambda group, how, *gs: Scatter.on(group, how, *gs),
    _alike,
    several=True,
)
Scatter: _Verb = _declare(
    "scatter_from", _scatter, lambda group, how, g: Gather.on(group, how, g), _alike
)
# Between values that each rank has its own of, and values that are one for all (whose gradients,
# too, are one for all): what makes one for all of many, and its adjoint back.
Total: _Verb = _declare(
    "total", _all_reduce, lambda group, how, g: Lent.on(group, how, g), _alike, shape=_same
)
Lent: _Verb = _declare(
    "lent", lambda group, how, x: _copied(group, x), lambda group, how, g: Total.on(group, how, g),
    _alike, shape=_same,
)  # fmt: skip
Joined: _Verb = _declare(
    "joined", _all_gather_single, lambda group, how, g: OwnRow.on(group, how, g), _along_rows,
    shape=_gathered,
)  # fmt: skip
OwnRow: _Verb = _declare(
    "own_row", _own_row, lambda group, how, g: Joined.on(group, how, g), _along_rows,
    shape=lambda group, how, shape: (1, *shape[1:]),
)  # fmt: skip
Send: _Verb = _declare("send", _send, lambda group, how, g: Recv.on(group, how, g), _alike)
Recv: _Verb = _declare("recv", _recv, lambda group, how, g: Send.on(group, how, g), _alike)


def _turned(how: How, n: int) -> How:
    """The exchange that sends everything back."""
    return how._replace(shapes=how.shapes[n:] + how.shapes[:n], splits=how.splits[::-1])


# --- reductions of every kind --------------------------------------------------------------------


def _linear(op: ReduceOp, x: Tensor) -> bool:
    """Whether the collective itself is right for backward; what has no gradient always is."""
    return op.name in _LINEAR or x.meta()[1].kind not in "fcV" or op.name not in _LOCAL


def all_reduce(group: Any, x: Tensor, op: ReduceOp = SUM) -> Tensor:
    """Every rank's ``x``, reduced, on every rank."""
    if _linear(op, x):
        return AllReduce.on(group, How(op=op), x)
    return _LOCAL[op.name](stack(AllGather.on(group, How(), x)), 0)


def reduce(group: Any, x: Tensor, root: int, op: ReduceOp = SUM) -> Tensor:
    """Every rank's ``x``, reduced, on ``root``; the others get their own values, without a
    derivative."""
    if _linear(op, x):
        return Reduce.on(group, How(op=op, root=root, keep=True), x)
    everyone = Gather.on(group, How(root=root), x)
    result = _LOCAL[op.name](stack(everyone), 0)
    return result if group.rank == root else result * 0 + x.detach()


def reduce_scatter(
    group: Any, xs: Sequence[Tensor], op: ReduceOp = SUM, into: np.ndarray | None = None
) -> Tensor:
    """All ranks' ``xs[rank]``, reduced."""
    given = None if into is None else [into]
    if _linear(op, xs[0]):
        return ReduceScatter.on(group, How(op=op, into=given), *xs)
    mine = tuple(xs[group.rank].shape)
    shapes = (*[mine] * group.size, *[tuple(x.shape) for x in xs])
    parts = AllToAll.on(group, How(shapes=shapes), *xs)
    out = _LOCAL[op.name](stack(parts), 0)
    value = _value(out)
    if into is not None and value is not None:
        into[...] = value.detach().array
    return out


def _value(x: Tensor) -> Tensor | None:
    """What a value inside transforms is outside of them; None for one of a batch."""
    while isinstance(x, Tracer):
        if getattr(x, "bdim", None) is not None:
            return None
        x = x.inner
    return x
