"""Layouts of products and windows: matmul, linear, attention, convolution, pooling."""

from __future__ import annotations

from typing import Any

from ...core.annotations import Shaped
from ..primitives.attention import attention_shape
from .layout import Layout, aligned, each, together


def _matmul(a: Any, b: Shaped) -> Layout:
    n = max(len(a.shape), len(b.shape)) - 2
    lead, out = aligned([_Shape(x.shape[:-2]) for x in (a, b)], n)
    return Layout(
        ((*lead[0], "m", "k"), (*lead[1], "k", "n")), ((*out, "m", "n"),), "sum", linear=each(0, 1)
    )


class _Shape:
    """A shape by itself."""

    def __init__(self, shape: tuple) -> None:
        self.shape = shape


def _linear(x: Shaped, w: object, b: object = None) -> Layout:
    lead = tuple(range(len(x.shape) - 1))
    ins = ((*lead, "k"), ("n", "k"), None if b is None else ("n",))
    linear = each(0, 1) if b is None else together(0, 2) + together(1, 2)
    return Layout(ins, ((*lead, "n"),), "sum", linear=linear, once=frozenset([2]))


def _attention(
    q: Any, k: Shaped, v: Shaped, mask: Any, causal: bool, scale: float, keep: bool = True
) -> Layout:
    """Heads and batches are for themselves."""
    given = [q, k, v] if mask is None else [q, k, v, mask]
    n = max(len(a.shape) for a in given) - 2
    lead, out = aligned([_Shape(tuple(a.shape)[:-2]) for a in given], n)
    ins: list[tuple | None] = [(*names_, None, None) for names_ in lead]
    if mask is None:
        ins.append(None)
    (_, (kept, _)) = attention_shape(q, k, v, mask, causal, scale, keep)
    named = (*out, None, None)
    return Layout(tuple(ins), (named, named if len(kept) > 1 else (None,)))


def _conv(x: Shaped, w: object, b: object, groups: int, **how: object) -> Layout:
    space = (None,) * (len(x.shape) - 2)
    whole = groups > 1
    i, o = (None, None) if whole else ("i", "o")
    ins = (("n", i, *space), (o, i, *space), None if b is None else (o,))
    linear = each(0, 1) if b is None else together(0, 2) + together(1, 2)
    return Layout(ins, (("n", o, *space),), "sum", linear=linear, once=frozenset([2]))


def _conv_input_grad(g_out: object, w: Shaped, groups: int, **how: object) -> Layout:
    space = (None,) * (len(w.shape) - 2)
    i, o = (None, None) if groups > 1 else ("i", "o")
    return Layout((("n", o, *space), (o, i, *space)), (("n", i, *space),), "sum", linear=each(0, 1))


def _conv_weight_grad(g_out: object, x: Shaped, groups: int, **how: object) -> Layout:
    space = (None,) * (len(x.shape) - 2)
    i, o = (None, None) if groups > 1 else ("i", "o")
    return Layout((("n", o, *space), ("n", i, *space)), ((o, i, *space),), "sum", linear=each(0, 1))


def _pool(*args: Any, linear: tuple = (), **how: object) -> Layout:
    """Samples and channels are for themselves."""
    own = (0, 1, *(None,) * (len(args[0].shape) - 2))
    return Layout((own,) * len(args), (own,), linear=linear)


def _linear_pool(*args: object, **how: object) -> Layout:
    return _pool(*args, linear=each(0), **how)


def _samples(x: Shaped, **how: object) -> Layout:
    """Of several dimensions, the first is one of samples."""
    rest = len(x.shape) - 1
    return Layout(((0, *(None,) * rest),), ((0, None, None),), linear=together(0))


def _from_columns(columns: object, size: tuple, **how: object) -> Layout:
    return Layout(((0, None, None),), ((0, None, *(None,) * len(size)),), linear=together(0))


def _of_rows(x: Shaped, *others: Any, own: int | None = None, **how: object) -> Layout:
    """A product of integers, which is rounded: rows of x, and rows of w with what belongs to them.
    ``own``: the leading dimensions whose parts are rounded for themselves."""
    free = len(x.shape) - 1 if own is None else own
    lead = tuple(d if d < free else None for d in range(len(x.shape) - 1))
    beside = tuple(None if a is None else ("n",) * len(a.shape) for a in others[1:])
    return Layout(((*lead, None), ("n", None), *beside), ((*lead, "n"),))


def _integer_conv(x: Shaped, w: Any, *others: Any, groups: int, **how: object) -> Layout:
    space, o = (None,) * (len(x.shape) - 2), None if groups > 1 else "o"
    beside = tuple(None if a is None else (o,) * len(a.shape) for a in others)
    return Layout((("n", None, *space), (o, None, *space), *beside), (("n", o, *space),))


RULES = {
    "local_product": _matmul,
    "matmul": _matmul,
    "linear": _linear,
    "attention": _attention,
    "conv": _conv,
    "weight_int8_linear": _of_rows,
    "integer_linear": _of_rows,
    "dynamic_linear": _of_rows,
    "integer_conv": _integer_conv,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    "max_pool": _pool,
    "max_pool_pick": _linear_pool,
    "max_pool_spread": _linear_pool,
    "max_pool_indices": _pool,
    "avg_pool": _linear_pool,
    "avg_pool_spread": _linear_pool,
    "im2col": _samples,
    "col2im": _from_columns,
}
