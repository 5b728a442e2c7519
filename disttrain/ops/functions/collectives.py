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

from ...comm.reduce_ops import ReduceOp
from ...core.function import Function
from ...core.tensor import Tensor, note_read, wrap
from ...errors import DeviceError, ShapeError
from .join import stack
from .reduce import amax, amin, prod

SUM = ReduceOp.SUM
_LINEAR = ("SUM", "AVG", "PREMUL_SUM")
_LOCAL = {"PRODUCT": prod, "MIN": amin, "MAX": amax}


class How(NamedTuple):
    """What a collective is told beside its tensors. ``shapes``: of the results, where they differ
    from the inputs'; ``splits``: rows from and to each rank; ``keep``: who is not the root of a
    reduce keeps its values (as the derivative sees it, it has zeros)."""

    op: ReduceOp = SUM
    root: int = 0
    shapes: tuple = ()
    splits: tuple = (None, None)
    tag: int = 0
    keep: bool = False
    into: Any = None


def _empty(group: Any, like: np.ndarray, shape: Sequence[int] | None = None) -> np.ndarray:
    return group.empty(like.shape if shape is None else tuple(shape), like.dtype)


def _copied(group: Any, x: np.ndarray) -> np.ndarray:
    out = _empty(group, x)
    out[...] = x
    return out


def _outs(group: Any, how: How, like: np.ndarray, shapes: Sequence[tuple]) -> list[np.ndarray]:
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
    return np.zeros((), x.dtype)


def _recv(group: Any, how: How, after: np.ndarray) -> np.ndarray:
    (out,) = how.into or [_empty(group, after, how.shapes[0])]
    group.recv(out, how.root, how.tag)
    return out


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


class _Verb(Function):
    """Base of the declared collectives: ``apply(group, how, *tensors)``."""

    move: Callable
    adjoint: Callable

    @classmethod
    def on(cls, group: Any, how: How, *xs: Tensor) -> Any:
        """Run it, recorded."""
        return cls.apply(group, how, *xs)


def _declare(name: str, move: Callable, adjoint: Callable) -> Any:
    """The collective that does ``move(group, how, *arrays)``. ``adjoint(group, how, *cotangents)``
    gives the cotangents of the inputs, through collectives of this file."""

    def forward(ctx: Any, group: Any, how: How, *xs: Tensor) -> Any:
        ctx.group, ctx.how, ctx.metas = group, how, [x.meta() for x in xs]
        result = move(group, how, *[_read(name, x) for x in xs])
        return tuple(map(wrap, result)) if isinstance(result, tuple) else wrap(result)

    def backward(ctx: Any, *gs: Tensor) -> tuple:
        grads = adjoint(ctx.group, ctx.how._replace(into=None), *gs)
        return (None, None, *(grads if isinstance(grads, tuple) else (grads,)))

    def jvp(ctx: Any, _group: Any, _how: Any, *tangents: Tensor | None) -> Any:
        metas = zip(tangents, ctx.metas, strict=True)
        given = [wrap(np.zeros(*m)) if t is None else t for t, m in metas]
        return verb.apply(ctx.group, ctx.how._replace(into=None), *given)

    rules = {"forward": forward, "backward": backward, "jvp": jvp}
    verb = type(name, (_Verb,), {k: staticmethod(v) for k, v in rules.items()})
    return verb


def _read(name: str, x: Tensor) -> np.ndarray:
    if x.is_meta:
        raise DeviceError(f"{name}: a tensor on the meta device has no data to communicate")
    note_read(x)
    return x.array


def _weighed(group: Any, op: ReduceOp, g: Tensor) -> Tensor:
    """``g`` times what a linear reduction multiplies each rank's values by."""
    if op.factor is not None:
        return g * op.factor
    return g / group.size if op.name == "AVG" else g


def _of_recv(group: Any, how: How, g: Tensor) -> Tensor:
    return Send.on(group, how, g)


def _of_send(group: Any, how: How, g: Tensor) -> Tensor:
    return Recv.on(group, how, g)


AllReduce = _declare("AllReduce", _all_reduce, lambda group, how, g: AllReduce.on(group, how, g))
Reduce = _declare(
    "Reduce",
    _reduce,
    lambda group, how, g: _weighed(group, how.op, Broadcast.on(group, how, g)),
)
Broadcast = _declare(
    "Broadcast",
    _broadcast,
    lambda group, how, g: Reduce.on(group, how._replace(op=SUM, keep=False), g),
)
AllGather = _declare(
    "AllGather",
    _all_gather,
    lambda group, how, *gs: ReduceScatter.on(group, how, *gs),
)
ReduceScatter = _declare(
    "ReduceScatter",
    _reduce_scatter,
    lambda group, how, g: AllGather.on(group, how._replace(op=SUM), _weighed(group, how.op, g)),
)
AllGatherSingle = _declare(
    "AllGatherSingle",
    _all_gather_single,
    lambda group, how, g: ReduceScatterSingle.on(group, how, g),
)
ReduceScatterSingle = _declare(
    "ReduceScatterSingle",
    _reduce_scatter_single,
    lambda group, how, g: AllGatherSingle.on(
        group, how._replace(op=SUM), _weighed(group, how.op, g)
    ),
)
AllToAll = _declare(
    "AllToAll",
    _all_to_all,
    lambda group, how, *gs: AllToAll.on(group, _turned(how, len(gs)), *gs),
)
AllToAllSingle = _declare(
    "AllToAllSingle",
    _all_to_all_single,
    lambda group, how, g: AllToAllSingle.on(group, _turned(how, 1), g),
)
Gather = _declare("Gather", _gather, lambda group, how, *gs: Scatter.on(group, how, *gs))
Scatter = _declare("Scatter", _scatter, lambda group, how, g: Gather.on(group, how, g))
Send = _declare("Send", _send, _of_send)
Recv = _declare("Recv", _recv, _of_recv)


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
    if into is not None:
        into[...] = out.detach().array
    return out
