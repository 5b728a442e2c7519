"""Checks and normal forms of arguments that many public functions share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...errors import DimError, ShapeError


def one_dim(dim: int, ndim: int, where: str) -> int:
    """``dim`` as a number from 0 on, checked. A 0-d tensor accepts 0 and -1."""
    if dim.__class__ is int and 0 <= dim < ndim:
        return dim
    limit = max(ndim, 1)
    if not isinstance(dim, (int, np.integer)):
        raise DimError(f"{where}: dim={dim!r} given; an integer is needed")
    if not -limit <= dim < limit:
        raise DimError(
            f"{where}: dimension {dim} given; a tensor with {ndim} dimensions needs one from "
            f"{-limit} to {limit - 1}"
        )
    return int(dim) % limit


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


def size(args: tuple, where: str, named: Any = None) -> tuple[int, ...]:
    """``f(2, 3)``, ``f((2, 3))`` and ``f(size=(2, 3))`` alike: a tuple of integers."""
    if named is not None:
        args = (named,)
    if len(args) == 1 and args[0].__class__ is not int and isinstance(args[0], _SEQUENCES):
        args = tuple(args[0])
    for n in args:
        if n.__class__ is not int:
            break
    else:
        return args
    out = []
    for n in args:
        if isinstance(n, Tensor):
            n = n.item()
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
            raise ShapeError(f"{where}: size {args!r} given; integers are needed")
        out.append(int(n))
    return tuple(out)


def tensor(value: Any, where: str, name: str = "input") -> Tensor:
    """``value`` if it is a Tensor, else an error."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{where}: {name} must be a Tensor, not {type(value).__name__}; "
            "convert it with dt.tensor(...) or dt.as_tensor(...)"
        )
    return value


def numpy_names(fn: Callable) -> Callable:
    """Let ``fn`` also take numpy's ``axis`` for ``dim`` and ``keepdims`` for ``keepdim``."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return fn(*args)
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if "keepdims" in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        return fn(*args, **kwargs)

    return run
