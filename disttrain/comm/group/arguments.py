"""Checks of what callers give to a process group, with messages for them.

Knows arrays and numbers; no groups, no transports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.array import Located
from ...backends.device.platform import platform_of
from ...errors import CollectiveMismatch, ConfigError, DTypeError, ShapeError
from .device_setup import is_device_array


def flat(verb: str, array: RawArray | np.ndarray, write: bool = False) -> Any:
    """``array`` as one contiguous row: a view if it can be, else a copy."""
    if not isinstance(array, np.ndarray):
        return _flat_on_device(verb, array)
    flags = array.flags
    if write and not flags.writeable:
        raise ConfigError(
            f"{verb}: a read-only array was given; needed is one that can receive. Copy it."
        )
    if array.ndim == 1 and flags.c_contiguous:
        return array
    return array.ravel()


def _flat_on_device(verb: str, array: Any) -> Any:
    """As ``flat``, of a raw array of a platform."""
    if not is_device_array(array):
        raise ConfigError(
            f"{verb}: {type(array).__name__} was given; needed is a numpy array or one of a device."
        )
    if array.ndim == 1 and array.flags.c_contiguous:
        return array
    with _where(array):
        return array.ravel()


def _where(array: object) -> AbstractContextManager[Any]:
    """Inside the block the device that ``array`` lies on is the current one."""
    platform = platform_of(array)
    return nullcontext() if platform is None else Located(platform, platform.index_of(array))


def outputs(verb: str, outs: Sequence[np.ndarray], dtype: np.dtype) -> list[np.ndarray]:
    """Flat receiving arrays of ``dtype``."""
    flats = [flat(verb, out, write=True) for out in outs]
    for i, out in enumerate(outs):
        same_dtype(verb, f"outs[{i}]", out, dtype)
    return flats


def same_dtype(verb: str, what: str, array: np.ndarray, dtype: np.dtype) -> None:
    """``array`` has ``dtype``."""
    if array.dtype != dtype:
        raise DTypeError(
            f"{verb}: {what} of dtype {array.dtype} was given; needed is {dtype}, as the other "
            "arrays have."
        )


def apart(
    ins: list[np.ndarray], outs: Sequence[np.ndarray], own: tuple[np.ndarray, np.ndarray]
) -> list[np.ndarray]:
    """``ins`` (flat), or copies where an output lies over something that is yet to be read, by this
    rank or by a peer. ``own``: the input and the output of this rank's own part, which nobody else
    reads or which keeps its values: those may be one piece of memory."""
    if ins[0].__class__ is not np.ndarray or (len(ins) > 1 and len(outs) > 1):
        pairs = _overlapping(ins, outs)
    else:
        pairs = [(a, out) for a in ins for out in outs if np.may_share_memory(a, out)]
    if not pairs:
        return ins
    (a, out), *others = pairs
    in_place = a is own[0] and out is own[1] and _span(a) == _span(out)
    if in_place and not others:
        return ins
    with _where(a):
        return [a.copy() for a in ins]


def _overlapping(
    ins: Sequence[np.ndarray], outs: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The pairs of an input and an output that share memory, where no two inputs do."""
    spans = sorted((*_span(a), i, k) for k, of in enumerate((ins, outs)) for i, a in enumerate(of))
    last: list[tuple[int, int]] = [(0, 0), (0, 0)]  # of either kind: what ends last
    found = []
    for start, end, i, kind in spans:
        if start < end:
            other_end, j = last[1 - kind]
            if start < other_end:
                found.append((ins[j], outs[i]) if kind else (ins[i], outs[j]))
            last[kind] = max(last[kind], (end, i))
    return found


def _span(row: RawArray | np.ndarray) -> tuple[int, int]:
    """The addresses at which a flat array begins and ends."""
    if row.__class__ is np.ndarray:
        start = row.__array_interface__["data"][0]
    else:
        platform = platform_of(row)
        assert platform is not None
        start = platform.address(row)
    return start, start + row.nbytes


def fit(verb: str, what: str, array: np.ndarray, shape: tuple) -> None:
    """``array`` has ``shape``."""
    if array.shape != shape:
        raise ShapeError(
            f"{verb}: {what} of shape {list(array.shape)} was given; needed is {list(shape)}."
        )


def per_rank(
    verb: str, what: str, arrays: object, size: int, where: str = ""
) -> Sequence[np.ndarray]:
    """``arrays``, which is a list with one array per rank."""
    given = type(arrays).__name__
    if isinstance(arrays, (list, tuple)):
        if len(arrays) == size:
            return arrays
        given = f"{len(arrays)} arrays"
    raise ConfigError(
        f"{verb}: {what}={given} was given; needed is a list of {size} arrays, one per "
        f"rank of the group{', ' + where if where else ''}."
    )


def member(verb: str, what: str, rank: int, size: int) -> None:
    """``rank`` is a rank of the group."""
    if not isinstance(rank, (int, np.integer)) or not 0 <= rank < size:
        raise ConfigError(
            f"{verb}: {what}={rank!r} was given; needed is a rank of the group, "
            f"0 <= {what} < {size}."
        )


def members(verb: str, what: str, value: Iterable[int], size: int) -> list[int]:
    """``value`` as a list of one or more different members."""
    ranks = list(value)
    if not ranks or len(set(ranks)) != len(ranks):
        raise ConfigError(f"{verb}: {what}={ranks} was given; needed are different ranks.")
    for r in ranks:
        member(verb, what, r, size)
    return ranks


def tag(number: int) -> None:
    """``number`` can be the tag of a message."""
    if not isinstance(number, (int, np.integer)) or not 0 <= number < 1 << 32:
        raise ConfigError(f"send/recv: tag={number!r} was given; needed is 0 <= tag < 2**32.")


def pieces(
    verb: str, what: str, array: np.ndarray, row: np.ndarray, splits: Any, size: int
) -> list[np.ndarray]:
    """Cut ``row``, which is ``array`` made flat, into one piece per rank along dimension 0."""
    rows = array.shape[0] if array.ndim else 0
    if splits is None:
        if array.ndim == 0 or rows % size:
            raise ShapeError(
                f"{verb}: {what} of shape {list(array.shape)} was given; needed is a first "
                f"dimension that {size} ranks divide, or splits."
            )
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ShapeError(
            f"{verb}: splits {list(splits)} of {what} were given; needed are {size} "
            f"numbers that add up to its {rows} rows."
        )
    width = array.size // rows if rows else 0
    found, at = [], 0
    for n in splits:
        found.append(row[at : at + n * width])
        at += n * width
    return found


def lists_differ(group: str, table: list[list[int]]) -> bool:
    """Whether the ranks that every rank gave to ``new_group`` (filled up with -1) mean several
    groups. Raises ``CollectiveMismatch`` unless all members of a list gave that list."""
    kinds: dict[tuple[int, ...], int] = {}
    kind = [kinds.setdefault(tuple(row), len(kinds)) for row in table]
    several = len(kinds) > 1
    lists = [[r for r in row if r >= 0] for row in table] if several else []
    for rank, theirs in enumerate(lists):
        other = next((r for r in theirs if kind[r] != kind[rank]), None)
        if rank in theirs and other is not None:
            raise CollectiveMismatch(
                f"group {group}: new_group: rank {rank} gave the ranks {theirs}, but its member "
                f"{other} gave {lists[other]}; all members of a group give the same list"
            )
    return several


def copy_back(pairs: list[tuple], result: object) -> Any:
    for array, flat in pairs:
        if array.__class__ is np.ndarray:
            array[...] = flat.reshape(array.shape)
        else:
            with _where(array):
                array[...] = flat.reshape(array.shape)
    return result
