"""``x[...]`` and ``x[...] = v``: basic indices are views, tensors and masks gather and scatter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...context import SLOW, thread
from ...core.annotations import ArrayLike, Index
from ...core.effects import captured
from ...core.fast import viewed
from ...core.tensor import Tensor, beside, wrap
from ...core.writes import touched
from ...errors import DimError
from ...trace import warn
from ..primitives import views
from .gathering import index_get, index_put
from .inplace import check_writeable, copy_, fill_, overwrite, records

_BASIC = (int, slice, type(None), type(Ellipsis))
_NESTED = (Tensor, list, tuple, np.ndarray, slice, type(None), type(Ellipsis))
_BOUNDS = (int, type(None))
ndarray = np.ndarray


def _items(key: object) -> tuple[tuple, bool]:
    """The index as a tuple, and whether it is basic (a view)."""
    if key.__class__ is list and len(key) < 32 and any(isinstance(i, _NESTED) for i in key):
        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
            "x[tuple(seq)] instead of x[seq]. A list of sequences means a tuple here, as in "
            "PyTorch; use x[torch.tensor(seq)] for one index of several dimensions",
        )
        key = tuple(key)
    items = key if isinstance(key, tuple) else (key,)
    basic = True
    out: list = []
    for item in items:
        if item.__class__ in _BASIC:
            out.append(_plain_slice(item) if item.__class__ is slice else item)
        elif isinstance(item, (bool, np.bool_)):
            out.append(np.asarray(item))
            basic = False
        elif isinstance(item, np.integer) or _is_scalar_index(item):
            out.append(int(item))
        else:
            out.append(item)
            basic = False
    return tuple(out), basic


def _places(key: object) -> tuple[tuple, bool]:
    """The same of an index that is written to. A capture does not read the one number in it that a
    tensor holds: whoever runs it again may have another."""
    items = key if isinstance(key, tuple) else (key,)
    numbers = [i for i in items if _is_scalar_index(i)]
    plain = all(i.__class__ in _BASIC for i in items if not isinstance(i, Tensor))
    if len(numbers) != 1 or not plain or sum(isinstance(i, Tensor) for i in items) > 1:
        return _items(key)
    return tuple(_plain_slice(i) if i.__class__ is slice else i for i in items), False


def _is_scalar_index(item: object) -> bool:
    return (
        isinstance(item, Tensor)
        and not hasattr(item, "interp")
        and item.array.ndim == 0
        and item.array.dtype.kind in "iu"
        and item.array.dtype.char != "B"  # bytes are masks
    )


def _plain_slice(s: slice) -> slice:
    if isinstance(s.start, Tensor) or isinstance(s.stop, Tensor) or isinstance(s.step, Tensor):
        return slice(*(int(x) if isinstance(x, Tensor) else x for x in (s.start, s.stop, s.step)))
    return s


def _check(self: Tensor, items: tuple) -> None:
    """Index errors that name the dimension and its size."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > self.ndim:
        raise DimError(
            f"index: {used} indices given for a tensor with {self.ndim} dimensions (shape "
            f"{list(self.shape)})"
        )
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise DimError("index: '...' may stand only once")
    dim, shape = 0, self.meta()[0]
    for item in items:
        if item is None:
            continue
        if item is Ellipsis:
            dim += len(shape) - used
            continue
        if item.__class__ is int and not -shape[dim] <= item < shape[dim]:
            raise DimError(
                f"index {item} is out of bounds for dimension {dim} with size {shape[dim]} (shape "
                f"{list(shape)})"
            )
        if item.__class__ is slice and item.step is not None and item.step <= 0:
            raise DimError(f"index: step {item.step} given; slices need a positive step; use flip")
        dim += 1


def _is_plain(items: tuple) -> bool:
    """Whether all of ``items`` are what numpy makes a view of as we would."""
    for item in items:
        if item.__class__ is slice:
            step = item.step
            if step is not None and (step.__class__ is not int or step <= 0):
                return False
            if not (item.start.__class__ in _BOUNDS and item.stop.__class__ in _BOUNDS):
                return False
        elif item.__class__ not in _BASIC:
            return False
    return True


def getitem(self: Tensor, key: Index) -> Tensor:
    """``self[key]``."""
    mode = thread.mode
    if mode != SLOW:
        x = self.array
        items = key if key.__class__ is tuple else (key,)
        if x.__class__ is ndarray and (key.__class__ is int or _is_plain(items)):
            try:
                array = x[key]
                if array.__class__ is not ndarray:
                    array = x[(*items, Ellipsis)]  # numpy gave a number; this is its place
            except IndexError:
                pass
            else:
                return viewed(views.getitem, self, array, {"index": items}, mode)
    items, basic = _items(key)
    if not basic:
        return index_get(self, items)
    _check(self, items)
    return views.getitem(self, index=items)


def setitem(self: Tensor, key: Index, value: ArrayLike) -> None:
    """``self[key] = value``."""
    items, basic = _places(key) if thread.mode == SLOW and captured() else _items(key)
    if basic:
        _check(self, items)
        region = views.getitem(self, index=items)
        if isinstance(value, Tensor):
            copy_(region, _squeezed(value, region.ndim))
        elif isinstance(value, (int, float, bool, complex)):
            check_writeable("setitem", region)
            fill_(region, value)
        else:
            copy_(region, _as_tensor(value, region))
        return
    if not isinstance(value, Tensor):
        value = _as_tensor(value, self)
    if not _put_directly(self, items, value):
        overwrite("setitem", self, index_put, items, value)


def _put_directly(self: Tensor, items: tuple, value: Tensor) -> bool:
    """Let numpy write where nothing is recorded and it means the same; whatever it refuses, and
    what needs a word of warning, is for ``index_put``."""
    if thread.mode == SLOW or records(self, value):
        return False
    x, v = self.array, value.array
    if x.__class__ is not ndarray or v.dtype is not x.dtype or v.__class__ is not ndarray:
        return False
    if value._st is not None and value._st is self._st:
        return False
    index = tuple(i.array if isinstance(i, Tensor) else i for i in items)
    arrays = [np.asarray(i) for i in index if isinstance(i, (ndarray, list))]
    if any(a.dtype.kind not in "ib" for a in arrays):
        return False
    try:
        x[index] = v
    except (IndexError, ValueError, TypeError):
        return False
    touched(self)
    return True


def _squeezed(value: Tensor, ndim: int) -> Tensor:
    """Drop leading dimensions of size 1 that the region does not have."""
    shape = tuple(value.shape)
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return value if len(shape) == value.ndim else views.reshape(value, shape=shape)


def _as_tensor(value: object, like: Tensor) -> Tensor:
    array = np.asarray(value, dtype=like.meta()[1])
    return beside(like, array) if array.ndim else wrap(array)


def iterate(self: Tensor) -> Iterator[Tensor]:
    """The elements along the first dimension, as views."""
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor; use .item() for its value")
    return iter([views.getitem(self, index=(i,)) for i in range(self.meta()[0][0])])
