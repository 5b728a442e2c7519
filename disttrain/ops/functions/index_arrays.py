"""``x[...]`` with tensors and masks as indices, and the checks of indices that all functions share.

Indices are checked and made non-negative here; the primitives (``gathering``) rely on it. Values
inside a transform cannot be looked at, so there they are only made non-negative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.null import NullArray
from ...context import SLOW, thread
from ...core.classes import values_of
from ...core.gate import Primitive, Tracer, gate
from ...core.tensor import Tensor, beside, note_read, wrap
from ...core.types import dtypes
from ...errors import DeviceError, DimError, DTypeError, ShapeError
from ...symbolic import is_symbolic, made
from ...trace import warn
from ..primitives import elementwise as el
from ..primitives import gathering as prim
from ..primitives import views
from ..primitives.moving import moved
from ..promotion import fitted

ndarray = np.ndarray
_ALL = slice(None)


# --- indices -----------------------------------------------------------------------------------
def visible(t: Any) -> bool:
    """Whether ``t`` holds numbers that can be looked at now."""
    return not isinstance(t, Tracer) and _on_host(t.__dict__.get("array"))


def _on_host(array: Any) -> bool:
    """Whether an array is numpy's, or stands for one."""
    return array.__class__ is ndarray or getattr(array, "as_host", False)


_INDICES = (np.dtype(np.int64), np.dtype(np.int32))


def integers(where: str, index: object, types: tuple = _INDICES) -> Tensor:
    """``index`` as a Tensor of integers, of one of ``types``."""
    if not isinstance(index, Tensor):
        array = np.asarray(index)
        index = wrap(array.astype(np.int64) if array.size == 0 else array)
    if index.meta()[1] not in types:
        names = " or ".join(t.name for t in types)
        raise DTypeError(
            f"{where}: an index of type {index.dtype!r} given; indices are integers "
            f"({names}): use .long()"
        )
    return index


def _out_of_range(where: str, bad: int, dim: int, size: int) -> DimError:
    return DimError(
        f"{where}: index {bad} is out of range for dimension {dim} of size {size}; it must lie in "
        f"0..{size - 1}"
    )


def bounded(
    where: str, index: Tensor, dim: int, size: int, negative: bool = False, types: tuple = _INDICES
) -> Tensor:
    """``index`` checked against ``size``; counted from the end where it may be negative."""
    index = integers(where, index, types)
    if not visible(index):
        if index.is_meta or not negative:
            return index
        return el.where(el.lt(index, 0), index + size, index)
    if thread.mode == SLOW:  # as an operation, which a capture can repeat
        params = {"where": where, "dim": dim, "size": size, "negative": negative}
        return gate(_check_index, (index,), params)
    array = index.array
    checked = _within(array, where, dim, size, negative)
    return index if checked is array else wrap(checked)


def _within(array: np.ndarray, where: str, dim: int, size: int, negative: bool) -> Any:
    if not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    if high >= size or low < (-size if negative else 0):
        if negative and low < -size:
            raise _out_of_range(where, low, dim, size)
        raise _out_of_range(where, high if high >= size else low, dim, size)
    return np.where(array < 0, array + size, array) if low < 0 else array


_check_index = Primitive("check_index", _within, ("index",))
_check_index.checks = True
_check_index.shape = lambda index, **how: (index.shape, index.dtype)


# --- x[...] with tensors and masks -------------------------------------------------------------
def _warn_of_bytes() -> None:
    warn(
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
    )


def _arrays_of(item: object, shape: tuple, dim: int, place: int) -> list:
    """The index tensors (one per dimension it covers) that one item of an index stands for."""
    if not isinstance(item, Tensor):
        array = np.asarray([np.asarray(i) for i in item] if isinstance(item, list) else item)
        item = wrap(
            array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array
        )
    given, kind = item.meta()
    if kind.kind == "b" or kind == np.uint8:
        if kind == np.uint8:
            _warn_of_bytes()
        if tuple(given) != tuple(shape[dim : dim + len(given)]):
            raise DimError(
                f"index: the shape of the mask {list(given)} at index {place} does not match the "
                f"shape of the indexed tensor {list(shape)} at that place"
            )
        return [beside(item, a) for a in np.nonzero(values_of(item))]
    if kind.kind not in "iu":
        raise DimError(
            f"index: tensors used as indices must be integers or booleans, not {item.dtype!r}"
        )
    if dim >= len(shape):
        raise DimError(f"index: too many indices for a tensor with {len(shape)} dimensions")
    return [bounded("index", item, dim, shape[dim], negative=True)]


def _covers(item: object) -> int:
    """How many dimensions an item of an index covers."""
    if item is None:
        return 0
    shape, kind = None, None
    if isinstance(item, Tensor):
        shape, kind = item.meta()
    elif isinstance(item, np.ndarray):
        shape, kind = item.shape, item.dtype
    elif isinstance(item, list):
        probe = np.asarray([np.asarray(i) for i in item])
        shape, kind = probe.shape, probe.dtype
    masks = kind is not None and (kind.kind == "b" or kind == np.uint8)
    return len(shape) if masks and shape is not None else 1


def _plan(shape: tuple, items: tuple) -> tuple[tuple, list[tuple[int, Tensor]]]:
    """Split a mixed index: what is basic, and (dimension of the basic result, index tensor)s."""
    used = sum(_covers(i) for i in items if i is not Ellipsis)
    if used > len(shape):
        raise DimError(
            f"index: {used} indices given for a tensor with {len(shape)} dimensions (shape "
            f"{list(shape)})"
        )
    if not any(i is Ellipsis for i in items):
        items = (*items, Ellipsis)
    basic: list = []
    arrays: list[tuple[int, Tensor]] = []
    dim = out_dim = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            n = len(shape) - used
            basic += [_ALL] * n
            dim, out_dim = dim + n, out_dim + n
        elif item is None:
            basic.append(None)
            out_dim += 1
        elif isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
            if not -shape[dim] <= item < shape[dim]:
                raise _out_of_range("index", int(item), dim, shape[dim])
            basic.append(int(item))
            dim += 1
        elif isinstance(item, slice):
            if item.step is not None and item.step <= 0:
                raise DimError(f"index: step {item.step} given; slices need a positive step")
            basic.append(item)
            dim, out_dim = dim + 1, out_dim + 1
        elif _covers(item) == 0:  # a mask without dimensions adds one
            basic.append(None)
            hit = bool(values_of(item) if isinstance(item, Tensor) else item)
            arrays.append((out_dim, wrap(np.zeros(int(hit), np.int64))))
            out_dim += 1
        else:
            found = _arrays_of(item, shape, dim, place)
            arrays += [(out_dim + k, a) for k, a in enumerate(found)]
            basic += [_ALL] * len(found)
            dim, out_dim = dim + len(found), out_dim + len(found)
    return tuple(basic), arrays


def index_get(a: Tensor, items: tuple) -> Tensor:
    """``a[items]`` for a tuple of slices, None, integers, Ellipsis, index tensors and masks."""
    if len(items) == 1 and _is_mask(items[0]):
        return masked(a, items[0])
    basic, arrays = _plan(tuple(a.meta()[0]), items)
    if any(i != _ALL for i in basic):
        a = views.getitem(a, index=basic)
    if not arrays:
        return a
    own = a.__dict__.get("array")
    for k, (p, t) in enumerate(arrays):
        if not (_on_host(own) and _on_host(t.__dict__.get("array"))):
            arrays[k] = p, near(a, t)
    if len(arrays) == 1:
        return prim.take(a, arrays[0][1], dim=arrays[0][0])
    places = [p for p, _ in arrays]
    if places != list(range(places[0], places[0] + len(places))):
        rest = [i for i in range(len(a.shape)) if i not in places]
        a = views.permute(a, dims=(*places, *rest))
        places = list(range(len(places)))
    return _take_merged(a, places[0], [t for _, t in arrays])


def _take_merged(a: Tensor, first: int, indices: list[Tensor]) -> Tensor:
    """Index ``len(indices)`` neighbouring dimensions at once: as one, by one index."""
    shape = tuple(a.meta()[0])
    sizes = shape[first : first + len(indices)]
    flat: Any = None
    for t, n in zip(indices, sizes, strict=True):
        try:
            flat = t if flat is None else flat * n + t
        except ValueError:
            shapes = ", ".join(str(list(i.shape)) for i in indices)
            raise DimError(
                f"index: the index tensors have shapes {shapes}, which cannot be broadcast together"
            ) from None
    merged = (*shape[:first], math.prod(sizes), *shape[first + len(indices) :])
    return prim.take(views.reshape(a, shape=merged), flat, dim=first)


def _is_mask(item: object) -> bool:
    if isinstance(item, Tensor):
        shape, kind = item.meta()
        return len(shape) > 0 and kind.kind == "b"
    return isinstance(item, np.ndarray) and item.ndim > 0 and item.dtype.kind == "b"


def masked(a: Tensor, mask: Any) -> Tensor:
    """``a[mask]``: the elements (or slices) where the mask holds, in order."""
    shape, given = tuple(a.meta()[0]), tuple(mask.shape)
    if given != shape[: len(given)]:
        raise DimError(
            f"index: the shape of the mask {list(given)} at index 0 does not match the shape of "
            f"the indexed tensor {list(shape)} at that place"
        )
    own = mask.__dict__.get("array") if isinstance(mask, Tensor) else mask
    if own.__class__ is NullArray:
        raise DimError("index: a mask on the meta device has no data, so no result shape")
    if len(given) > 1:
        a = views.reshape(a, shape=(math.prod(given), *shape[len(given) :]))
    return prim.take(a, _places_of(a, mask), dim=0)


def _places_of(a: Tensor, mask: Tensor | np.ndarray) -> Tensor:
    """Where ``mask`` holds, as one index of all its dimensions, for ``a``."""
    own = mask.__dict__.get("array") if isinstance(mask, Tensor) else mask
    if own.__class__ is DeviceArray:
        if isinstance(mask, Tensor):  # how many there are is known to Python
            note_read(mask)
        return near(a, wrap(own.here().make(lambda xp: xp.flatnonzero(own.data))))
    return beside(a, np.flatnonzero(values_of(mask) if isinstance(mask, Tensor) else mask))


def _numbered(a: Tensor) -> Tensor:
    """The places of ``a``, one after the other, in its shape."""
    shape = tuple(a.meta()[0])
    own, n = a.__dict__.get("array"), math.prod(shape)
    if is_symbolic(shape):
        return wrap(made(numbered, shape, shape=shape))
    if own.__class__ is DeviceArray:
        return wrap(own.here().make(lambda xp: xp.arange(n).reshape(shape)))
    if own is None:
        return beside(a, np.arange(n).reshape(shape))
    return wrap(np.arange(n).reshape(shape))


def numbered(shape: tuple) -> np.ndarray:
    """Numbers from 0 on, in this shape."""
    return np.arange(math.prod(shape)).reshape(shape)


def _number_near(a: Tensor, value: Tensor) -> Tensor:
    """``value``, of no dimensions, where ``a`` lies; a constant is made there."""
    own, given = a.__dict__.get("array"), value.__dict__.get("array")
    if own.__class__ is DeviceArray and given.__class__ is ndarray and value._node is None:
        return wrap(own.here().make(lambda xp: xp.full((), given[()], given.dtype)))
    return near(a, value)


def nonzero_places(t: Tensor) -> tuple:
    """Where ``t`` is not zero: an index per dimension."""
    own = t.__dict__.get("array")
    if own.__class__ is DeviceArray and own.ndim:
        note_read(t)  # (how many there are)
        with own.here() as there:
            return tuple(wrap(own.like(a)) for a in there.platform.xp.nonzero(own.data))
    return tuple(beside(t, a) for a in np.nonzero(np.atleast_1d(values_of(t))))


def near(a: Tensor, t: Tensor) -> Tensor:
    """``t``, an index or a value for ``a``, where ``a`` lies: those on the host may be anywhere."""
    where, have = a.device, t.device
    if where == have or where.type == "meta" or have.type == "meta":
        return t
    if have.type != "cpu":
        raise DeviceError(
            f"index: indices should be either on cpu or on the same device as the indexed tensor "
            f"({where}); one of shape {list(t.shape)} is on {have}; move it with .to()"
        )
    return moved(t, where)


def _converts(items: tuple, values: Tensor) -> bool:
    """Whether values of another type are converted, as for an assignment without index tensors:
    there, and for one value where masks hold."""
    kinds = (Tensor, np.ndarray, list, tuple, range)
    given = [i if isinstance(i, Tensor) else np.asarray(i) for i in items if isinstance(i, kinds)]
    given = [i for i in given if i.ndim or i.dtype not in (dtypes.bool, np.bool_)]  # not of x[True]
    return not given or (values.numel() == 1 and all(map(_is_mask, given)))


def index_put(a: Tensor, items: tuple, values: object, accumulate: bool = False) -> Tensor:
    """A copy of ``a`` with ``a[items] = values`` (or ``+=``, counting repeated places)."""
    items = tuple(items)
    if not items:
        raise DimError("index_put: no indices given; at least one is needed")
    shape, kind = a.meta()
    if isinstance(values, Tensor) and values.meta()[1] != kind and not _converts(items, values):
        numbers = np.arange(math.prod(shape)).reshape(shape)
        _fitted(values, index_get(beside(a, numbers), items))  # which may have more to complain of
        raise DTypeError(
            f"index_put: values of {values.dtype!r} given for a tensor of {a.dtype!r}; both need "
            "the same type: convert the values with .to(x.dtype)"
        )
    values = as_values(values, kind)
    mask = items[0] if len(items) == 1 else None
    if _is_mask(mask) and not accumulate and len(values.shape) == 0:
        mask = near(a, mask if isinstance(mask, Tensor) else wrap(mask))
        covered = tuple(mask.shape)
        if covered == tuple(shape[: len(covered)]):
            mask = views.reshape(mask, shape=(*covered, *(1,) * (len(shape) - len(covered))))
            return el.where(mask, values, a)
    values = values if values.ndim else _number_near(a, values)
    places = index_get(_numbered(a), items)
    return prim.put(a, places, _fitted(values, places), accumulate=bool(accumulate))


def as_values(values: object, kind: np.dtype) -> Tensor:
    """``values`` (a tensor, or numbers that ``kind`` can hold) in the type ``kind``."""
    if isinstance(values, (int, float, complex)):
        values = fitted("index_put", values, dtypes.of(kind))
    if not isinstance(values, Tensor):
        return wrap(made(np.asarray, values, kind, shape=()) if is_symbolic(values)
                    else np.asarray(values, dtype=kind))  # fmt: skip
    return values if values.meta()[1] == kind else el.cast(values, dtype=kind)


def _fitted(values: Tensor, places: Tensor) -> Tensor:
    """``values`` in the shape of the places that are written."""
    have, need = tuple(values.shape), tuple(places.shape)
    while len(have) > len(need) and have[0] == 1:
        have = have[1:]
    if have != tuple(values.shape):
        values = views.reshape(values, shape=have)
    if have == need:
        return values
    try:
        return views.expand(values, shape=need)
    except ValueError:
        raise ShapeError(
            f"index_put: shape mismatch: value tensor of shape {list(have)} cannot be broadcast to "
            f"indexing result of shape {list(need)}"
        ) from None
