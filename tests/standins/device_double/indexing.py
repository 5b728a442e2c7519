"""Indexing as CuPy does it: what lies outside wraps, and what is written twice is anybody's guess
(the double refuses it)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .memory import owner_of
from .signatures import Unsupported
from .work import HostUse, Work


def key(work: Work, index: Any, shape: tuple[int, ...]) -> tuple[tuple, list[int]]:
    """``index`` for numpy, and what ``wrapped`` wraps each part of it into (0: nothing). Counts the
    waits of masks."""
    parts = index if isinstance(index, tuple) else (index,)
    found: list[Any] = []
    sizes: list[int] = []
    taken = sum(_axes(p) for p in parts)
    axis = 0
    for p in parts:
        sizes.append(0)
        if p is Ellipsis:
            found.append(p)
            axis += len(shape) - taken
        elif isinstance(p, (list, np.ndarray)):
            raise HostUse(f"{work.name}: an index of the host's ({type(p).__name__})")
        elif p.__class__ is work.platform.array_type:
            a = work.hidden(p)
            if a.dtype.kind == "b":
                work.platform.synchronized("indexing by a mask")
            elif a.dtype.kind in "iu":
                sizes[-1] = shape[axis] if axis < len(shape) else 1
            found.append(a)
            axis += _axes(p)
        else:
            found.append(p)
            axis += _axes(p)
    return tuple(found), sizes


def wrapped(parts: tuple, sizes: list[int]) -> tuple:
    """The index as it is now: what a graph replays sees other numbers in its arrays."""
    return tuple(np.mod(p, n) if n else p for p, n in zip(parts, sizes))


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, (bool, np.bool_)):
        raise Unsupported("an index that is True or False is an array of CuPy's, from the host")
    dtype = getattr(part, "dtype", None)
    return part.ndim if dtype is not None and dtype.kind == "b" else 1


def is_basic(index: tuple) -> bool:
    """Whether numpy makes a view of it."""
    return not any(isinstance(p, np.ndarray) for p in index)


def check_once(name: str, hidden: np.ndarray, index: tuple) -> None:
    """Refuse an index that names an element twice: the order of writes is not defined."""
    places = np.arange(hidden.size).reshape(hidden.shape)[index].reshape(-1)
    if len(np.unique(places)) != len(places):
        raise Unsupported(f"{name}: an element is written twice; which one stays is not defined")


def get(array: Any, index: Any) -> Any:
    """``array[index]``."""
    work = Work(array._memory.platform, "indexing")
    at, sizes = key(work, index, array.shape)
    if is_basic(at):  # a view, which no device has to make
        work.reads.append(array._memory)
        hidden = array._hidden
        view = at if any(i is ... for i in at) else (*at, ...)  # so that no number comes of it
        return work.run(lambda: np.asarray(hidden[view]), views=True)
    hidden = work.hidden(array)
    return work.run(lambda: hidden[wrapped(at, sizes)])


def put(array: Any, index: Any, value: Any) -> None:
    """``array[index] = value``."""
    work = Work(array._memory.platform, "writing by index")
    hidden = work.target(array)
    at, sizes = key(work, index, array.shape)
    given = work.operand(value)
    if not is_basic(at) and np.ndim(given):
        check_once(work.name, hidden, wrapped(at, sizes))

    def write() -> None:
        hidden[wrapped(at, sizes)] = given

    work.run(write)


def take(work: Work, a: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    """``cupy.take``: indices wrap."""
    hidden = work.hidden(a)
    if isinstance(indices, (list, tuple, np.ndarray)):
        raise HostUse("cupy.take: indices of the host's")
    at = work.hidden(indices)
    target = None if out is None else work.target(out)
    found = work.run(lambda: np.take(hidden, at, axis, target, mode="wrap"))
    return found if out is None else out


def put_along_axis(work: Work, arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """``cupy.put_along_axis``: no element twice."""
    hidden, at, by = work.target(arr), work.hidden(indices), work.operand(values)
    if np.ndim(by):
        places = np.take_along_axis(np.arange(hidden.size).reshape(hidden.shape), at, axis)
        if len(np.unique(places)) != places.size:
            raise Unsupported("cupy.put_along_axis: an element is written twice")
    work.run(lambda: np.put_along_axis(hidden, at, by, axis))


def as_strided(work: Work, x: Any, shape: Any = None, strides: Any = None) -> Any:
    """``cupy.lib.stride_tricks.as_strided``; what would lie outside of the memory is an error."""
    hidden = work.hidden(x)
    shape = hidden.shape if shape is None else tuple(shape)
    strides = hidden.strides if strides is None else tuple(strides)
    owner = owner_of(hidden)
    flat = owner.reshape(-1, order="A").view(np.uint8)
    start = _address(hidden) - _address(owner)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides)) + hidden.itemsize
    if math.prod(shape) and not (0 <= start + low and start + high <= flat.nbytes):
        raise Unsupported("cupy.lib.stride_tricks.as_strided: reaches outside of the memory")
    made = np.ndarray(shape, hidden.dtype, flat, start, strides)
    return work.platform.array_type(made, x._memory, orphan=True)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
