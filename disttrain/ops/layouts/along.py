"""Layouts of what works along dimensions: reductions, running sums, order, softmax, norms."""

from __future__ import annotations

from typing import Any

from ...core.annotations import Shaped
from .layout import Layout, aligned, each, names, together


def _reduction(reduce: str | None, linear: bool = False, even: bool = False) -> Any:
    """The rule of a reduction by ``reduce`` over ``dims`` (or ``dim``)."""

    def rule(a: Shaped, keepdim: bool, dims: tuple | None = None, dim: int | None = None) -> Layout:
        over = dims if dims is not None else (dim,)
        own = names(a) if reduce is not None else names(a, *over)
        out = tuple(None if d in over else n for d, n in enumerate(own) if keepdim or d not in over)
        equal = {d: a.shape[d] for d in over} if even else {}
        return Layout((own,), (out,), reduce, linear=together(0) if linear else (), even=equal)

    return rule


def _along(*, linear: tuple = ()) -> Any:
    """The rule of an operation on arrays of one shape along ``dim`` or ``dims``, which stay."""

    def rule(*args: Shaped, dim: int | None = None, dims: tuple = (), **params: Any) -> Layout:
        over = tuple(dims) if dim is None else (dim,)
        own = names(args[0], *over)
        return Layout((own,) * len(args), (own,), linear=linear)

    return rule


def _trailing(count: int, linear: tuple = ()) -> Any:
    """The rule of an operation on the last ``count`` dimensions of each argument, which stay."""

    def rule(*args: Shaped, **params: Any) -> Layout:
        ins = tuple(names(a, *range(len(a.shape) - count, len(a.shape))) for a in args)
        return Layout(ins, (ins[-1],), linear=linear)

    return rule


def _det(a: object) -> Layout:
    lead = names(a)[:-2]
    return Layout(((*lead, None, None),), (lead,))


def _slogdet(a: object) -> Layout:
    lead = names(a)[:-2]
    return Layout(((*lead, None, None),), (lead, lead))


def _svd(a: object) -> Layout:
    lead = names(a)[:-2]
    return Layout(((*lead, None, None),), ((*lead, None, None), (*lead, None), (*lead, None, None)))


def _svd_square(a: object) -> Layout:
    lead = names(a)[:-2]
    return Layout(((*lead, None, None),), ((*lead, None, None), (*lead, None, None)))


def _layer_norm(x: Shaped, weight: object, bias: object, eps: float) -> Layout:
    own = names(x, len(x.shape) - 1)
    last = [None if a is None else (None,) for a in (weight, bias)]
    return Layout((own, *last), (own, own[:-1], own[:-1]))


def _rms_norm(x: Shaped, weight: object, eps: float) -> Layout:
    own = names(x, len(x.shape) - 1)
    return Layout((own, None if weight is None else (None,)), (own, own[:-1]))


def _batch_norm(x: object, weight: object, bias: object, eps: float) -> Layout:
    channels = [None if a is None else (1,) for a in (weight, bias)]
    return Layout(((None, 1, None), *channels), ((None, 1, None), (1,), (1,)))


def _group_norm(x: Shaped, weight: object, bias: object, groups: int, eps: float) -> Layout:
    affine = [None if a is None else (None,) for a in (weight, bias)]
    own = (0, *(None,) * (len(x.shape) - 1))
    return Layout((own, *affine), (own, (0, None), (0, None)))


def _polygamma(a: Any, **params: object) -> Layout:
    ins, out = aligned((a,))
    return Layout(ins, (out,))


RULES = {
    "sum": _reduction("sum", linear=True),
    "mean": _reduction("avg", linear=True, even=True),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "any": _reduction("max"),
    "all": _reduction("min"),
    "prod": _reduction("product"),
    "logsumexp": _reduction(None),
    "argmax": _reduction(None),
    "argmin": _reduction(None),
    "cumsum": _along(linear=together(0)),
    "cumprod": _along(),
    "argsort": _along(),
    "median_places": _along(),
    "top_places": _along(),
    "softmax": _along(),
    "log_softmax": _along(),
    "softmax_backward": _along(linear=each(0)),
    "log_softmax_backward": _along(linear=each(0)),
    "flip": _along(linear=together(0)),
    "roll": _along(linear=together(0)),
    "tri": _trailing(2, together(0)),
    "inv": _trailing(2),
    "solve": _trailing(2, each(1)),
    "det": _det,
    "slogdet": _slogdet,
    "svd": _svd,
    "svd_square": _svd_square,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "polygamma": _polygamma,
}
