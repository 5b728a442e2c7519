"""Reading and writing by NumPy's indices, with a say over places that are not there: brought to the
nearest ("clip"), read as a value of their own ("fill"), not written ("drop").

An index is a tuple of numbers, slices (with any step), None, Ellipsis, and tensors of integers;
``expanded`` has brought masks and everything else to these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of

Items = tuple[Any, ...]


def items(key: Any, shape: tuple[int, ...], read: Callable[[Any], Any]) -> Items:
    """An index as a program has it, of which ``read`` makes tensors (or numbers) of what is neither
    a number of Python's, None, Ellipsis nor a slice."""
    found = tuple(_item(i, read) for i in (key if isinstance(key, tuple) else (key,)))
    d = 0
    for k, item in enumerate(found):
        if isinstance(item, Tensor) and item.dtype is dtypes.bool and item.ndim:
            want = list(shape[d : d + item.ndim])
            if list(item.shape) != want and Ellipsis not in found[:k]:
                raise IndexError(
                    f"boolean index did not match shape of indexed array in index {k}: got "
                    f"{tuple(item.shape)}, expected {want}"
                )
            d += item.ndim
        elif item is not None and item is not Ellipsis:
            d += 1
    return found


def _item(item: Any, read: Callable[[Any], Any]) -> Any:
    if item.__class__ is int or item is None or item is Ellipsis:
        return item
    if isinstance(item, slice):
        return slice(*(_end(b) for b in (item.start, item.stop, item.step)))
    if isinstance(item, (bool, np.bool_)):
        return wrap(np.asarray(item))
    found = read(item)
    if isinstance(found, Tensor) and found.meta()[1].kind not in "iub":
        raise TypeError(
            "Indexer must have integer or boolean type, got indexer with type "
            f"{getattr(item, 'dtype', type(item))}"
        )
    return found


def _end(value: Any) -> int | None:
    if value is None or value.__class__ is int:
        return value  # type: ignore[no-any-return]
    try:
        return value.__index__()  # type: ignore[no-any-return]
    except (TypeError, AttributeError):
        raise IndexError(f"Slice entries must be static integers. Got {value!r}") from None


def is_inside(key: Any, shape: tuple[int, ...]) -> bool:
    """Whether ``key`` is a number that is there, or a slice of whole numbers without steps."""
    if key.__class__ is int:
        return bool(shape) and -shape[0] <= key < shape[0]
    if key.__class__ is not slice or not shape or key.step is not None:
        return False
    return all(b is None or b.__class__ is int for b in (key.start, key.stop))


def expanded(key: Items, ndim: int) -> list[Any]:
    """``key`` with an item for each dimension (and None for new ones), masks as places."""
    out: list[Any] = []
    for item in key:
        if isinstance(item, Tensor) and item.dtype is dtypes.bool:
            out += list(ops.nonzero(item, as_tuple=True)) if item.ndim else [item]
        else:
            out.append(item)
    used = sum(i is not None and i is not Ellipsis and not _flag(i) for i in out)
    if used > ndim:
        raise IndexError(f"Too many indices: array is {ndim}-dimensional, but {used} were indexed")
    if sum(i is Ellipsis for i in out) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not any(i is Ellipsis for i in out):
        out.append(Ellipsis)
    place = next(k for k, i in enumerate(out) if i is Ellipsis)
    out[place : place + 1] = [slice(None)] * (ndim - used)
    return out


def _flag(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype is dtypes.bool and not item.ndim


def _with_flags(x: Tensor, items: list[Any]) -> tuple[Tensor, list[Any]]:
    """Scalar masks are a new dimension of which everything or nothing is taken."""
    d, out = 0, []
    for item in items:
        if _flag(item):
            x = ops.unsqueeze(x, d)
            item = ops.arange(int(bool(item)))
        if item is not None:
            d += 1
        out.append(item)
    return x, out


def _sliced(x: Tensor, items: list[Any]) -> tuple[Tensor, list[Any]]:
    """Slices taken, of any step, and whole ones left in their places."""
    d = 0
    out: list[Any] = []
    basic: list[Any] = []
    turned = []
    for item in items:
        if item is None:
            out.append(None)
            continue
        if isinstance(item, slice):
            start, stop, step = item.indices(x.shape[d])
            if step < 0:
                count = max(0, -(-(start - stop) // -step))
                turned.append(d)
                first = start + (count - 1) * step if count else 0
                basic.append(slice(first, start + 1 if count else 0, -step))
            else:
                basic.append(slice(start, max(stop, start), step))
            out.append(slice(None))
        else:
            basic.append(slice(None))
            out.append(item)
        d += 1
    if any(b != slice(None) for b in basic):
        x = x[tuple(basic)]
    return (ops.flip(x, turned) if turned else x), out


def _bounded(item: Any, n: int, mode: str, negative: bool) -> Any:
    """An integer index that is inside, or ``n`` (one beyond) where it is to be told."""
    if isinstance(item, Tensor):
        at = item.to(dtypes.int64) if item.dtype is not dtypes.int64 else item
        at = ops.where(at < 0, at + n, at) if negative else at
        if mode == "clip":
            return ops.clamp(at, 0, max(n - 1, 0))
        return ops.where((at >= 0) & (at < n), at, n)
    at = item + n if item < 0 and negative else item
    if mode == "clip":
        return min(max(at, 0), max(n - 1, 0))
    return at if 0 <= at < n else n


def _line(item: Any) -> Any:
    if item.__class__ is int:
        return wrap(np.full((1,), item))
    return item.reshape(1) if isinstance(item, Tensor) and not item.ndim else item


def _joined(x: Tensor, items: list[Any]) -> Tensor:
    """``x`` at bounded ``items``: numbers beside tensors are tensors, too, as in NumPy."""
    many = [i for i in items if isinstance(i, Tensor) and i.ndim]
    if many:
        items = [_line(i) for i in items]
        shapes = [tuple(i.shape) for i in items if isinstance(i, Tensor)]
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            raise IndexError(
                f"shape mismatch: indexing arrays could not be broadcast together: {shapes}"
            ) from None
    if all(i == slice(None) if isinstance(i, slice) else False for i in items):
        return x
    if any(isinstance(i, Tensor) for i in items):
        return ops.index_get(x, tuple(items))
    return x[tuple(items)]


def get(
    x: Tensor, key: Items, mode: str = "clip", fill: Any = None, negative: bool = True
) -> Tensor:
    """``x[key]``; places that are not there are brought to the nearest, or read as ``fill``.
    ``mode="inside"``: brought to the nearest, with no gradient where a number is not there."""
    x, items = _with_flags(x, expanded(key, x.ndim))
    if mode == "fill" and any(not isinstance(i, (slice, type(None))) for i in items):
        flat = ops.cat([x.reshape(-1), x.new_full((1,), fill)])
        return flat[_places(tuple(x.shape), items, negative)]
    x, items = _sliced(x, items)
    out = _joined(x, _checked(x, items, "clip", negative))
    return out.detach() if mode == "inside" and _is_outside(tuple(x.shape), items) else out


def _is_outside(shape: tuple[int, ...], items: list[Any]) -> bool:
    sizes = iter(shape)
    pairs = [(i, next(sizes)) for i in items if i is not None]
    return any(i.__class__ is int and not -n <= i < n for i, n in pairs)


def _checked(x: Tensor, items: list[Any], mode: str, negative: bool) -> list[Any]:
    d, out = 0, []
    for item in items:
        if item is None or isinstance(item, slice):
            out.append(item)
        else:
            if (
                mode == "clip"
                and not x.shape[d]
                and not (isinstance(item, Tensor) and not item.numel())
            ):
                raise IndexError(f"index is out of bounds for axis {d} with size 0")
            out.append(_bounded(item, x.shape[d], mode, negative))
        d += item is not None
    return out


def _places(shape: tuple[int, ...], items: list[Any], negative: bool) -> Tensor:
    """Places in the flattened array, ``size`` for those that are not there."""
    size = math.prod(shape)
    taken = [i for i in items if i is not None]
    beyond = [(0, 0 if isinstance(i, slice) else 1) for i in taken]
    numbers = np.pad(np.arange(size).reshape(shape), beyond, constant_values=size)
    sizes, out = iter(shape), []
    for item in items:
        n = 0 if item is None else next(sizes)
        plain = item is None or isinstance(item, slice)
        out.append(item if plain else _bounded(item, n, "fill", negative))
    places, out = _sliced(wrap(numbers), out)
    return _joined(places, out)


_REDUCE = {"multiply": "prod", "min": "amin", "max": "amax"}


def put(
    x: Tensor, key: Items, values: Tensor, how: str = "set", mode: str = "drop",
    negative: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of ``x`` with ``values`` (broadcast) written to ``x[key]``, or added, multiplied with
    it, the lesser or greater of both. Places that are not there are left out ("drop"), or brought
    to the nearest ("clip")."""
    shape = tuple(x.shape)
    given, items = _with_flags(x, expanded(key, x.ndim))
    if mode == "clip":
        items = _checked(given, items, "clip", negative)
    at = _places(tuple(given.shape), items, negative)
    try:
        values = ops.broadcast_to(values, tuple(at.shape)).reshape(-1)
    except ValueError:
        raise ValueError(
            f"Incompatible shapes for broadcasting: {tuple(values.shape)} and requested shape "
            f"{tuple(at.shape)}"
        ) from None
    at, flat = at.reshape(-1), x.reshape(-1)
    room = ops.cat([flat, x.new_zeros(1)])
    if how in _REDUCE:
        kind = room.dtype
        if kind is dtypes.bool:
            room, values = room.to(dtypes.uint8), values.to(dtypes.uint8)
        out = ops.scatter_reduce(room, 0, at, values, _REDUCE[how]).to(kind)
    elif x.dtype is dtypes.bool and how == "add":
        out = ops.scatter_reduce(room.to(dtypes.uint8), 0, at, values.to(dtypes.uint8), "amax") != 0
    else:
        out = ops.index_put(room, (at,), values, accumulate=how == "add")
    return out[: flat.shape[0]].reshape(shape)


# --- functions ----------------------------------------------------------------------------------
def missing(x: Tensor) -> Any:
    """What is read where nothing is: nan, or the least (unsigned: the largest) integer."""
    kind = x.meta()[1]
    if kind.kind == "b":
        return True
    if kind.kind in "iu":
        return int(np.iinfo(kind).min if kind.kind == "i" else np.iinfo(kind).max)
    return float("nan")


def take(
    a: Tensor, indices: Tensor, axis: int | None = None, mode: str | None = None,
    fill_value: Any = None,
) -> Tensor:  # fmt: skip
    """The slices of ``a`` along ``axis``; those that are not there are ``fill_value`` (None: nan),
    the nearest (``mode="clip"``), or counted around ("wrap")."""
    if indices.meta()[1].kind not in "iu":
        raise TypeError(f"take requires integer indices, got {indices.meta()[1].name}")
    a = a.reshape(-1) if axis is None else a
    d = axis_of(0 if axis is None else axis, a.ndim)
    n = a.shape[d]
    if not n and indices.numel():
        raise IndexError("cannot do a non-empty take() from an empty axis.")
    if mode == "wrap":
        indices, mode = ops.remainder(indices, n), "clip"
    fill = missing(a) if fill_value is None else fill_value
    mode = "fill" if mode is None else mode
    return get(a, (slice(None),) * d + (indices,), mode, fill, negative=mode == "fill")


def _copied(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"{name} cannot modify arrays in-place, because they are immutable. Pass inplace=False "
            "to instead return an updated array."
        )


def put_flat(
    a: Tensor, ind: Tensor, v: Tensor, mode: str | None = None, inplace: bool = True
) -> Tensor:
    """A copy of ``a`` with ``v``, again and again, at places of the flattened array."""
    _copied("put", inplace)
    places, values = ind.reshape(-1), v.to(a.dtype).reshape(-1)
    if not places.numel() or not values.numel():
        return a
    values = ops.tile(values, (-(-places.numel() // values.numel()),))[: places.numel()]
    if mode == "wrap":
        places = ops.remainder(places, a.numel())
    how = "drop" if mode == "drop" else "clip"
    return put(a.reshape(-1), (places,), values, mode=how).reshape(a.shape)


def put_along_axis(
    arr: Tensor, indices: Tensor, values: Tensor, axis: int | None, inplace: bool = True,
    mode: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of ``arr`` with ``values`` where ``indices`` says along ``axis``."""
    _copied("put_along_axis", inplace)
    flat = arr.reshape(-1) if axis is None else arr
    d = 0 if axis is None else axis_of(axis, arr.ndim)
    key = [
        ops.arange(n).reshape([-1 if k == j else 1 for k in range(flat.ndim)])
        for j, n in enumerate(flat.shape)
    ]
    key[d] = indices
    return put(flat, tuple(key), values.to(arr.dtype)).reshape(arr.shape)


def place(arr: Tensor, mask: Tensor, vals: Tensor, inplace: bool = True) -> Tensor:
    """A copy of ``arr`` with ``vals``, again and again, where ``mask`` holds."""
    _copied("place", inplace)
    flags, values = mask != 0, vals.to(arr.dtype).reshape(-1)
    if not values.numel():
        raise ValueError("Cannot place from an empty array.")
    rank = ops.cumsum(flags.reshape(-1).to(dtypes.int64), 0) - 1
    chosen = values[ops.remainder(rank, values.shape[0])].reshape(arr.shape)
    return ops.where(flags, chosen, arr)
