"""Checks and normal forms of arguments that many public functions share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...core.tensor import Tensor
from ...core.types.wide import is_half
from ...errors import DimError, DimKindError, ShapeError
from ...symbolic import as_int, common_shape
from ..primitives import elementwise as el
from ..promotion import refuse

Fn = TypeVar("Fn", bound=Callable[..., Any])


def one_dim(dim: int, ndim: int, where: str) -> int:
    """``dim`` as a number from 0 on, checked. A 0-d tensor accepts 0 and -1."""
    if dim.__class__ is int and 0 <= dim < ndim:
        return dim
    limit = max(ndim, 1)
    if not isinstance(dim, (int, np.integer)):
        raise DimKindError(f"{where}: dim={dim!r} given; an integer is needed")
    if not -limit <= dim < limit:
        raise DimError(
            f"{where}: dimension {dim} given; a tensor with {ndim} dimensions needs one from "
            f"{-limit} to {limit - 1} (Dimension out of range)"
        )
    return int(dim) % limit


def broadcast(where: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape that all broadcast to."""
    try:
        return common_shape(*[tuple(s) for s in shapes])
    except ValueError as error:
        raise ShapeError(f"{where}: {[list(s) for s in shapes]} do not fit: {error}") from None


def dims(dim: Any, ndim: int, where: str) -> tuple[int, ...]:
    """One dimension, several or None (all) as a tuple of numbers from 0 on, checked."""
    if dim is None:
        return tuple(range(ndim))
    if dim.__class__ is int and ndim:
        return (one_dim(dim, ndim, where),)
    if not isinstance(dim, (int, np.integer)) and len(dim) == 0:
        return tuple(range(ndim))
    if isinstance(dim, (int, np.integer)):
        dim = (dim,)
    out = tuple(one_dim(d, ndim, where) for d in dim)
    if len(set(out)) != len(out):
        raise DimError(f"{where}: dim={tuple(dim)} names a dimension twice")
    return () if ndim == 0 else out


_SEQUENCES = (Sequence, np.ndarray)


def size(args: tuple, where: str, named: object = None) -> tuple[int, ...]:
    """``f(2, 3)``, ``f((2, 3))`` and ``f(size=(2, 3))`` alike: a tuple of integers."""
    if named is not None:
        args = (named,)
    one: Any = args[0] if len(args) == 1 else 0
    if one.__class__ is not int and isinstance(one, _SEQUENCES) and getattr(one, "ndim", True):
        args = tuple(args[0])
    for n in args:
        if n.__class__ is not int:
            break
    else:
        return args
    out = []
    for n in args:
        if isinstance(n, Tensor) or (isinstance(n, np.ndarray) and not n.ndim):
            n = n.item()
        if isinstance(n, float):
            raise DimKindError(f"{where}: size {args!r} given; integers are needed")
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
            raise DimKindError(f"{where}: size {args!r} given; integers are needed")
        out.append(as_int(n))
    return tuple(out)


def tensor(value: object, where: str, name: str = "input") -> Tensor:
    """``value`` if it is a Tensor, else an error."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{where}: {name} must be a Tensor, not {type(value).__name__}; "
            "convert it with dt.tensor(...) or dt.as_tensor(...)"
        )
    return value


def in_float32(fn: Fn) -> Fn:
    """Let ``fn``, composed of several operations, compute tensors of half types in float32 and
    round once: what lies between may not fit into a half type, and each rounding would add up."""

    @functools.wraps(fn)
    def run(input: object, *args: object, **kwargs: object) -> Any:
        if not isinstance(input, Tensor) or not is_half(input.meta()[1]):
            return fn(input, *args, **kwargs)
        given = [a for a in (input, *args, *kwargs.values()) if isinstance(a, Tensor)]
        kinds = {t.meta()[1] for t in given if t.meta()[1].kind in "fVc"}
        if len(kinds) > 1:  # promotion finds the wider type
            return fn(input, *args, **kwargs)
        (kind,) = kinds
        wide = {k: _widened(v) for k, v in kwargs.items()}
        out = fn(_widened(input), *map(_widened, args), **wide)
        return tuple(map(partial(_rounded, kind), out)) if isinstance(out, tuple) else (
            _rounded(kind, out)
        )  # fmt: skip

    return run  # type: ignore[return-value]


_FLOAT32 = np.dtype(np.float32)


def _widened(a: object) -> Any:
    half = isinstance(a, Tensor) and is_half(a.meta()[1])
    return el.cast(a, dtype=_FLOAT32) if half else a


def _rounded(kind: np.dtype, out: Tensor) -> Any:
    there = isinstance(out, Tensor) and out.meta()[1] == _FLOAT32 and kind != _FLOAT32
    return el.cast(out, dtype=kind) if there else out


def kinds(where: str, allowed: str, *tensors: Tensor) -> None:
    """Raise ``DTypeError`` unless numpy's kinds of all element types are in ``allowed``."""
    for t in tensors:
        kind = t.meta()[1]
        if kind.kind not in allowed:
            raise refuse(where, kind)


def numpy_names(fn: Fn) -> Fn:
    """Let ``fn`` also take numpy's ``axis`` for ``dim`` and ``keepdims`` for ``keepdim``."""

    @functools.wraps(fn)
    def run(*args: object, **kwargs: object) -> Any:
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if "keepdims" in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        return fn(*args, **kwargs)

    return run  # type: ignore[return-value]
