"""Layouts of what reads and writes at places: indexing by tensors, losses, random masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.null import NullArray
from ...core.annotations import Shaped
from ..primitives import elementwise as el
from ..primitives.loss import cross_entropy_rows
from .layout import Layout, Rewrite, aligned, each, shape_of


def _take(a: Shaped, index: Shaped, dim: int, skip: int | None = None) -> Layout:
    """A table cut by rows gives the rows that it has, and zeros for others."""
    at = tuple(f"i{d}" for d in range(len(index.shape)))
    own = tuple(range(len(a.shape)))
    out = (*own[:dim], *at, *own[dim + 1 :])
    return Layout((own, at), (out,), "sum", linear=each(0), local=_take_local)


def _own_places(index: np.ndarray, cut: Any) -> tuple:
    """(which of ``index`` fall into this piece, where)."""
    here = np.asarray(index - cut.start)
    inside = np.asarray((here >= 0) & (here < cut.length))
    return inside, np.where(inside, here, 0)


def _take_local(prim: Any, pieces: list, params: dict, cuts: dict) -> Any:
    table, index = pieces
    dim = params["dim"]
    if dim not in cuts or isinstance(table, NullArray):
        return prim.compute(pieces, params)
    inside, here = _own_places(index, cuts[dim])
    behind = table.ndim - dim - 1
    if not cuts[dim].length:
        return np.zeros((*table.shape[:dim], *index.shape, *table.shape[dim + 1 :]), table.dtype)
    out = prim.compute([table, here], params)
    mask = inside.reshape((*inside.shape, *(1,) * behind))
    return np.where(mask, out, out.dtype.type(0))


def _spread(g: Shaped, index: Shaped, dim: int, shape: tuple, skip: int | None = None) -> Layout:
    at = tuple(f"i{d}" for d in range(len(index.shape)))
    own = tuple(range(len(shape)))
    taken = (*own[:dim], *at, *own[dim + 1 :])
    out = tuple(None if d == dim else d for d in own)
    return Layout((taken, at), (out,), "sum", linear=each(0), shapes={"shape": 0})


def _together(a: Any, index: Any, dim: int) -> tuple:
    """Names of two arrays with places along ``dim``, cut alike where they are as long."""
    return tuple(
        d if d != dim and n == m else None
        for d, (n, m) in enumerate(zip(a.shape, index.shape, strict=True))
    )


def _gather(a: object, index: object, dim: int) -> Layout:
    own = _together(a, index, dim)
    at = tuple("at" if d == dim else n for d, n in enumerate(own))
    mine = tuple("from" if d == dim else n for d, n in enumerate(own))
    return Layout((mine, at), (at,), "sum", linear=each(0), local=_gather_local)


def _gather_local(prim: Any, pieces: list, params: dict, cuts: dict) -> Any:
    table, index = pieces
    if "from" not in cuts or isinstance(table, NullArray):
        return prim.compute(pieces, params)
    inside, here = _own_places(index, cuts["from"])
    if not cuts["from"].length:
        return np.zeros(index.shape, table.dtype)
    out = prim.compute([table, here], params)
    return np.where(inside, out, out.dtype.type(0))


def _put_along(g: object, index: Shaped, dim: int, shape: tuple) -> Layout:
    own = tuple(
        d if d != dim and n == m else None
        for d, (n, m) in enumerate(zip(shape, index.shape, strict=True))
    )
    at = tuple("at" if d == dim else n for d, n in enumerate(own))
    return Layout((at, at), (own,), "sum", linear=each(0), shapes={"shape": 0})


def _scatter(a: object, index: Any, src: Shaped, dim: int, **how: object) -> Layout:
    own = _together(a, index, dim)
    theirs = own if hasattr(src, "shape") else None
    if theirs is not None:
        theirs = tuple(
            n if n is not None and src.shape[d] == index.shape[d] else None
            for d, n in enumerate(own)
        )
        own = tuple(n if n in theirs else None for n in own)
        theirs = own
    return Layout((own, own, theirs), (own,))


def _put(a: Shaped, index: Shaped, values: Shaped, accumulate: bool) -> Layout:
    """Places are of the flattened array, so that must be whole."""
    ins = [None if not hasattr(x, "shape") else (None,) * len(x.shape) for x in (a, index, values)]
    return Layout(tuple(ins), (ins[0],))


# --- losses ------------------------------------------------------------------------------------
def _cross_entropy(
    a: object, target: object, weight: object, ignore_index: int, smoothing: float, reduction: str
) -> Any:
    if reduction == "mean":
        return Rewrite(_mean_cross_entropy)
    loss = ("n",) if reduction == "none" else ()
    ins = (("n", None), ("n",), None if weight is None else (None,))
    return Layout(ins, (loss, ("n",), ()), "sum")


def _mean_cross_entropy(
    a: object, target: object, weight: object, ignore_index: int, smoothing: float, reduction: str
) -> tuple:
    """The sum over what counts: both may be sums of pieces."""
    total, lse, count = cross_entropy_rows(
        a, target, weight, ignore_index=ignore_index, smoothing=smoothing, reduction="sum"
    )
    return el.div(total, el.cast(count, dtype=total.dtype)), lse, count


def _cross_entropy_backward(
    scale: object, a: object, target: object, weight: object, lse: object, **how: object
) -> Layout:
    rows = ("n", None)
    ins = (
        ("n",) if getattr(scale, "shape", ()) else (() if hasattr(scale, "shape") else None),
        rows, ("n",), None if weight is None else (None,), ("n",),
    )  # fmt: skip
    return Layout(ins, (rows,), linear=each(0) if hasattr(scale, "shape") else ())


# --- random ------------------------------------------------------------------------------------
def _mask(a: Any, p: float, generator: object) -> Layout:
    ins, out = aligned((a,))
    return Layout(ins, (out,), local=_mask_local)


def _mask_local(prim: Any, pieces: list, params: dict, cuts: dict) -> Any:
    """Every rank draws the whole and keeps its piece: the same numbers as one process draws."""
    (a,) = pieces
    if isinstance(a, NullArray) or not cuts:
        return prim.compute(pieces, params)
    full = tuple(cuts[d].full if d in cuts else n for d, n in enumerate(a.shape))
    drawn = prim.compute([_stand_in(a, full)], params)
    at = tuple(
        slice(cuts[d].start, cuts[d].start + n) if d in cuts else slice(None)
        for d, n in enumerate(a.shape)
    )
    if isinstance(drawn, DeviceArray):
        return drawn.like(drawn.data[at])
    return drawn[at]


def _stand_in(a: DeviceArray | np.ndarray, shape: tuple) -> Any:
    """An array of another shape where ``a`` lies, of which only that is asked."""
    if isinstance(a, DeviceArray):
        return a.here().make(lambda xp: xp.broadcast_to(xp.zeros((), a.dtype), shape))
    return np.broadcast_to(np.zeros((), a.dtype), shape)


def _draw(a: Shaped, **params: object) -> Layout:
    whole = (None,) * len(a.shape)
    return Layout((whole,), (whole,))


def _draws(*args: Shaped, **params: object) -> Layout:
    rank = max(len(a.shape) for a in args)
    return Layout(tuple((None,) * len(a.shape) for a in args), ((None,) * rank,))


def _searchsorted(
    edges: Shaped, values: Shaped, sorter: object, side: str, kind: np.dtype
) -> Layout:
    """Rows of sequences are for themselves; so are values, beside one sequence for all."""
    one = len(edges.shape) == 1
    own = tuple(range(len(values.shape))) if one else (*range(len(values.shape) - 1), "v")
    rows = (None,) if one else (*own[:-1], None)
    return Layout((rows, own, None if sorter is None else rows), (own,))


def _checked(a: Shaped, **params: object) -> Layout:
    """Each piece is checked where it lies."""
    own = tuple(range(len(a.shape)))
    return Layout((own,), (own,))


def _view_write(base: Shaped, value: object, chain: tuple) -> Layout:
    """A write to some part of a base."""
    own = (None,) * len(base.shape)
    return Layout((own, (None,) * len(value.shape) if hasattr(value, "shape") else None), (own,))


def _boundary(*args: Shaped) -> Layout:
    ins = tuple(tuple((i, d) for d in range(len(a.shape))) for i, a in enumerate(args))
    return Layout(ins, ins)


def _whole(*args: Shaped, **params: object) -> Layout:
    ins = tuple(None if shape_of(a) is None else (None,) * len(a.shape) for a in args)
    return Layout(ins, ins[:1])


def _multinomial(a: Shaped, **params: object) -> Layout:
    whole = (None,) * len(a.shape)
    return Layout((whole,), (whole,))


RULES = {
    "take": _take,
    "spread": _spread,
    "gather": _gather,
    "put_along": _put_along,
    "scatter": _scatter,
    "scatter_reduce": _scatter,
    "put": _put,
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "dropout_mask": _mask,
    "bernoulli": _draw,
    "poisson": _draw,
    "standard_gamma": _draw,
    "standard_dirichlet": _draw,
    "standard_von_mises": _draw,
    "binomial": _draws,
    "multinomial": _multinomial,
    "searchsorted": _searchsorted,
    "check_index": _checked,
    "check_classes": _checked,
    "check_probabilities": _checked,
    "view_write": _view_write,
    "boundary": _boundary,
    "adafactor_step": _whole,
    "muon_step": _whole,
}
