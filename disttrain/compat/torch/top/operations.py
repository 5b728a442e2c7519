"""Functions of the top level that are methods of Tensor, or have other names, elsewhere here."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ....ops.functions.arrangement import inclusive_range

_IN_PLACE = """abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh as_strided asin
asinh atan atanh ceil clamp clamp_max clamp_min clip conj_physical cos cosh deg2rad detach erf erfc
exp exp2 expm1 fill fix floor frac gcd i0 index_put lcm ldexp log log10 log1p log2 logit nan_to_num
neg negative rad2deg reciprocal relu resize_as round rsqrt sigmoid sin sinc sinh sqrt square tan
tanh trunc xlogy zero"""
_METHODS = "get_device is_inference"
# A copy of what the function of the name without _copy shows.
_COPIES = """alias as_strided detach diagonal expand permute select slice split split_with_sizes
squeeze t transpose unbind unfold unsqueeze view view_as_complex"""


def _method(name: str) -> Callable[..., Any]:
    """The method as a function, whose first argument is named ``input``."""
    called = operator.attrgetter(name)

    def run(input: dt.Tensor, *args: Any, **kwargs: Any) -> Any:
        return called(input)(*args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"``input.{name}(...)``."
    return run


def _alias(input: dt.Tensor) -> dt.Tensor:
    return input


def _slice(
    input: dt.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> dt.Tensor:
    at = dim if dim >= 0 else dim + input.ndim
    return input[(slice(None),) * at + (slice(start, end, step),)]


_OWN: dict[str, Callable[..., Any]] = {"alias": _alias, "slice": _slice}


def _copying(name: str) -> Callable[..., Any]:
    """The view ``name`` in memory of its own; given ``out``, there."""
    view = _OWN.get(name) or _method(name)

    def run(input: dt.Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        seen = view(input, *args, **kwargs)
        if out is None:
            return tuple(map(_copied, seen)) if isinstance(seen, tuple) else _copied(seen)
        if not isinstance(seen, tuple):
            return _written(out, seen)
        for one, part in zip(out, seen, strict=True):
            _written(one, part)
        return None

    run.__name__ = run.__qualname__ = f"{name}_copy"
    run.__doc__ = f"``{name}``, as a copy."
    return run


def _copied(view: dt.Tensor) -> dt.Tensor:
    return view.clone(memory_format=dt.contiguous_format)


def _written(out: dt.Tensor, view: dt.Tensor) -> dt.Tensor:
    return out.resize_(view.shape).copy_(view)


@functools.wraps(inclusive_range)
def _range(*args: Any, out: dt.Tensor | None = None, **kwargs: Any) -> dt.Tensor:
    made = inclusive_range(*args, **kwargs)
    if out is not None and out.numel() == made.numel():
        return out.copy_(made.reshape(out.shape))
    return made if out is None else _written(out, made)


class SymInt:
    """A whole number that is not known yet. Here sizes are numbers: none is ever made."""


class SymFloat:
    """A number that is not known yet: none is ever made."""


class SymBool:
    """An answer that is not known yet: none is ever made."""


def _largest(a: float, b: float) -> float:
    return max(float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def _smallest(a: float, b: float) -> float:
    return min(float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


# Of numbers that may be symbolic in PyTorch, and are none here.
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "sym_int": int, "sym_float": float, "sym_not": operator.not_, "sym_sqrt": math.sqrt,
    "sym_max": _largest, "sym_min": _smallest, "sym_sum": sum,
    "sym_ite": lambda condition, then, other: then if condition else other,
    "SymInt": SymInt, "SymFloat": SymFloat, "SymBool": SymBool,
}  # fmt: skip


def _anomaly(enabled: bool, check_nan: bool = True) -> None:
    dt.autograd.set_detect_anomaly(enabled, check_nan)


def nuclear_norm(input: dt.Tensor, dim: Any = None, keepdim: bool = False) -> dt.Tensor:
    """The sum of the singular values of a matrix, or of those in two dimensions."""
    return dt.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)


def frobenius_norm(input: dt.Tensor, dim: Any, keepdim: bool = False) -> dt.Tensor:
    """The root of the sum of squares over dimensions."""
    return dt.linalg.vector_norm(input, 2, dim or None, keepdim)


def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False,
) -> dt.Tensor:  # fmt: skip
    """The first ``size`` elements of a file. ``shared``: what is written to them is written to the
    file, which is made and lengthened where that is needed."""
    kind = (dtype or dt.get_default_dtype()).np
    if shared:
        with open(filename, "ab") as file:
            file.truncate(max(file.tell(), size * kind.itemsize))
    return dt.from_numpy(np.memmap(filename, kind, "r+" if shared else "c", shape=(size,)))


def fill(input: dt.Tensor, value: Any) -> dt.Tensor:
    """A tensor like ``input`` with ``value`` everywhere."""
    return input.clone().fill_(value)


def names() -> dict[str, Any]:
    """What ``torch`` gets from here."""
    functions = [f"{name}_" for name in _IN_PLACE.split()] + _METHODS.split()
    found: dict[str, Any] = {n: _method(n) for n in functions if hasattr(dt.Tensor, n)}
    copies = {f"{name}_copy": _copying(name) for name in _COPIES.split()}
    others = (nuclear_norm, frobenius_norm, from_file, fill)
    return {
        **found, **copies, **_OF_NUMBERS, **{f.__name__: f for f in others}, "range": _range,
        "set_anomaly_enabled": _anomaly, "is_anomaly_enabled": dt.autograd.is_anomaly_enabled,
        "is_anomaly_check_nan_enabled": dt.autograd.is_anomaly_check_nan_enabled,
        "is_distributed": lambda input: False,
    }  # fmt: skip
