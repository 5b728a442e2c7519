"""A gradient in the shape and element type of what it is the gradient of: sums undo broadcasting, a
cast undoes promotion. What fits already is given back as it is. And several gradients in memory of
their own (``apart``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...errors import ShapeError
from ..algebra import Algebra
from ..tensor import Tensor, wrap
from ..types.wide import total

ndarray = np.ndarray


def fit_array(node: Any, g: Any, shape: tuple, kind: object) -> Any:
    if g.__class__ is not ndarray:
        if isinstance(g, ArrayKind):
            if g.shape == shape and g.dtype == kind:
                return g
            return fit_tensor(node, wrap(g), shape, kind).array
        g = np.asarray(g)
    if g.shape != shape:
        _check_reducible(node, g.shape, shape)
        g = sum_to_array(g, shape)
    if g.dtype != kind:
        g = _real_if(g, kind).astype(kind)
    return g if g.__class__ is ndarray else np.asarray(g)


def _real_if(g: Any, kind: Any) -> Any:
    return g.real if g.dtype.kind == "c" and kind.kind != "c" else g


def fit_tensor(node: Any, g: Any, shape: tuple, kind: object) -> Any:
    have, have_kind = g.meta()
    if len(have) != len(shape) or have != shape:
        _check_reducible(node, have, shape)
        g = Algebra.sum_to(g, shape)
    return g if have_kind == kind else Algebra.cast(g, kind)


def _check_reducible(node: Any, have: tuple, want: tuple) -> None:
    lead = len(have) - len(want)
    tail = zip(have[lead:], want, strict=True)
    if lead < 0 or any(h != w and w != 1 for h, w in tail):
        raise ShapeError(
            f"backward: a gradient of shape {list(have)} reached {node.name()}, whose result has "
            f"shape {list(want)} (got {list(have)} but expected shape compatible with "
            f"{list(want)}); a rule or hook returned the wrong shape"
        )


def sum_to_array(g: Any, shape: tuple) -> Any:
    """Undo broadcasting: sum ``g`` down to ``shape``, in one go as ``Algebra.sum_to`` does."""
    lead = g.ndim - len(shape)
    axes = tuple(i for i, n in enumerate(shape, lead) if n == 1 and g.shape[i] != 1)
    if lead <= 0:
        return total(g, axes, True) if axes else g
    return np.asarray(total(g, (*range(lead), *axes), False)).reshape(shape)


def apart(found: Iterable[Any], kept: Iterable[Any], copy: Callable[[Any], Any]) -> list:
    """``found``, with copies of what is ``kept`` as well, or comes a second time."""
    seen = {id(_raw(a)) for a in kept}
    out = []
    for r in found:
        known = r is not None and id(_raw(r)) in seen
        out.append(copy(r) if known else r)
        seen.add(id(_raw(r)))
    return out


def _raw(value: object) -> Any:
    array = value.__dict__.get("array", value) if isinstance(value, Tensor) else value
    return array.data if array.__class__ is DeviceArray else array


def is_one(r: object, g: object) -> bool:
    """Whether two gradients that numpy does not hold are in one array."""
    if isinstance(r, Tensor):
        r, g = r.__dict__.get("array"), g.__dict__.get("array")
    if r is None or r is g:
        return r is not None
    return isinstance(r, ArrayKind) and not r.as_host and r.shares_with(g)
