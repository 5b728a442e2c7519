"""From a list of samples to one batch: tensors, arrays and numbers are stacked; containers are
taken apart and put together again. Knows samples; nothing of where they come from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ..core import Tensor, wrap
from ..core.types.dtypes import BY_NUMPY, known
from ..errors import DTypeError, ShapeError
from ..ops.functions.views.join import stack

_NUMBERS = ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128))


def default_collate(batch: Sequence) -> Any:
    """One batch of ``batch``, a list of samples of the same structure.

    Tensors, numpy arrays and scalars become Tensors with a new first dimension; Python numbers an
    int64, float64 or bool Tensor; texts and bytes a list; mappings, namedtuples and sequences
    keep their kind (tuples become lists). ``ShapeError`` and ``DTypeError`` name the sample and
    the place in it that does not fit.
    """
    return _collate(batch, "")


def _collate(batch: Sequence, at: str) -> Any:
    if not len(batch):
        raise ShapeError("default_collate: no samples given; one or more are needed")
    first = batch[0]
    if isinstance(first, Tensor):
        return _tensors(batch, at)
    if isinstance(first, np.ndarray) or (isinstance(first, np.generic) and first.dtype in BY_NUMPY):
        return _arrays(batch, at)
    if isinstance(first, (str, bytes)):
        return batch
    for kind, dtype in _NUMBERS:
        if isinstance(first, kind):
            return _numbers(batch, dtype, at)
    if isinstance(first, Mapping):
        return _mappings(batch, at)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_columns(batch, at))
    if isinstance(first, tuple):
        return _columns(batch, at)
    if isinstance(first, Sequence):
        return _sequences(batch, at)
    raise DTypeError(
        f"default_collate: {_place(0, at)} is a {type(first).__name__}; tensors, arrays, numbers, "
        "texts, mappings and sequences of them can be collated. Return one of those from the "
        "dataset, or give the DataLoader a collate_fn"
    )


def _place(index: int, at: str) -> str:
    return f"sample {index} of the batch" + (f" at {at}" if at else "")


def _tensors(batch: Sequence, at: str) -> Tensor:
    plain = True
    for i, t in enumerate(batch):
        if t.__class__ is not Tensor or t._node is not None:
            plain = False
            if not isinstance(t, Tensor):
                raise _mixed(batch, i, at)
    arrays = [t.array for t in batch] if plain else []
    if plain and all(a.__class__ is np.ndarray for a in arrays):
        return _arrays(arrays, at)
    _same_shapes(batch, at)
    return stack(list(batch))


def _arrays(batch: Sequence, at: str) -> Tensor:
    if batch[0].dtype not in BY_NUMPY and batch[0].dtype.newbyteorder("=") not in BY_NUMPY:
        raise DTypeError(
            f"default_collate: {_place(0, at)} is a numpy array of {batch[0].dtype}; numbers and "
            "truth values are needed. Convert it in the dataset, or give a collate_fn"
        )
    try:
        out = np.array(batch)
    except ValueError:
        _same_shapes(batch, at)
        raise
    if out.dtype not in BY_NUMPY:
        for i, a in enumerate(batch):
            if type(a) is not type(batch[0]):
                raise _mixed(batch, i, at)
        out = out.astype(out.dtype.newbyteorder("="))
    return wrap(known(out))


def _same_shapes(batch: Sequence, at: str) -> None:
    shape = tuple(np.shape(batch[0]) if not isinstance(batch[0], Tensor) else batch[0].shape)
    for i, other in enumerate(batch):
        if not hasattr(other, "shape"):
            raise _mixed(batch, i, at)
        if tuple(other.shape) != shape:
            raise ShapeError(
                f"default_collate: {_place(i, at)} has shape {list(other.shape)}, sample 0 has "
                f"{list(shape)}; they must be equal. Crop or pad them in the dataset, or give the "
                "DataLoader a collate_fn that does"
            )


def _mixed(batch: Sequence, index: int, at: str) -> DTypeError:
    return DTypeError(
        f"default_collate: {_place(index, at)} is a {type(batch[index]).__name__}, sample 0 has a "
        f"{type(batch[0]).__name__} there; all samples of a batch need the same structure"
    )


def _numbers(batch: Sequence, dtype: type, at: str) -> Tensor:
    try:
        return wrap(np.array(batch, dtype))
    except (TypeError, ValueError, OverflowError):
        for i, x in enumerate(batch):
            if not isinstance(x, (int, float, complex, np.number)):
                raise _mixed(batch, i, at) from None
        raise DTypeError(
            f"default_collate: the numbers{f' at {at}' if at else ''} do not fit "
            f"{np.dtype(dtype).name}: {batch!r:.200}"
        ) from None


def _mappings(batch: Sequence, at: str) -> Any:
    first = batch[0]
    out = {}
    for key in first:
        for i, sample in enumerate(batch):
            if not isinstance(sample, Mapping) or key not in sample:
                raise ShapeError(
                    f"default_collate: {_place(i, at)} has no {key!r}, which sample 0 has"
                )
        out[key] = _collate([sample[key] for sample in batch], f"{at}[{key!r}]")
    if type(first) is dict:
        return out
    try:
        if isinstance(first, MutableMapping):
            clone = copy.copy(first)
            clone.update(out)
            return clone
        return type(first)(out)
    except TypeError:  # its constructor wants something else
        return out


def _columns(batch: Sequence, at: str) -> list:
    try:
        columns = list(zip(*batch, strict=True))
    except (TypeError, ValueError):
        for i, sample in enumerate(batch):
            if not isinstance(sample, Sequence):
                raise _mixed(batch, i, at) from None
            if len(sample) != len(batch[0]):
                raise ShapeError(
                    f"default_collate: {_place(i, at)} has {len(sample)} parts, sample 0 has "
                    f"{len(batch[0])}; they must be equal, or give the DataLoader a collate_fn"
                ) from None
        raise
    return [_collate(column, f"{at}[{i}]") for i, column in enumerate(columns)]


def _sequences(batch: Sequence, at: str) -> Any:
    kind, columns = type(batch[0]), _columns(batch, at)
    if kind is list:
        return columns
    try:
        return kind(columns)
    except TypeError:  # such as range
        return columns


def default_convert(data: object) -> Any:
    """Numpy arrays and scalars in ``data`` as Tensors; containers keep their kind, all else stays.
    What the DataLoader does with samples when it makes no batches."""
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return wrap(known(np.asarray(data))) if data.dtype in BY_NUMPY else data
    if isinstance(data, Mapping):
        out = {k: default_convert(v) for k, v in data.items()}
        return out if type(data) is dict else like(data, out)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, tuple):
        return [default_convert(v) for v in data]
    if isinstance(data, Sequence):
        return like(data, [default_convert(v) for v in data])
    return data


def like(data: Any, values: object) -> Any:
    """``values`` as a container of the kind of ``data``; as they are where it takes none."""
    try:
        return type(data)(values)
    except TypeError:
        return values
