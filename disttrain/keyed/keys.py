"""Keys of random numbers: elements of the type ``dt.key``, in tensors of any shape.

A key says all that is drawn with it: the same key gives the same numbers, on every machine. New
keys are made of it by ``split`` and ``fold_in`` (threefry, see ``backends/llvm/threefry.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..context import thread
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import ConfigError
from ..ops.api import stack, tensor, zeros_like
from ..ops.primitives import threefry as prims

SLOT = "keyed.partitionable"  # of the rank: whether counters are those of the elements


def partitionable() -> bool:
    """Whether element i of what is drawn is a function of the key and i alone (so at first)."""
    return bool(thread.rank.slots.get(SLOT, True))


def use_partitionable(on: bool) -> None:
    """Say so for the calling rank; without, the bits are those of older versions of JAX."""
    thread.rank.slots[SLOT] = bool(on)


@contextlib.contextmanager
def as_partitionable(on: bool) -> Iterator[None]:
    """The same for a block."""
    before = partitionable()
    use_partitionable(on)
    try:
        yield
    finally:
        use_partitionable(before)


def seed(value: int | Tensor) -> Any:
    """The key of an integer (or keys of integers): the words of a number of 64 bits."""
    if not isinstance(value, Tensor):
        number = int(value) & 0xFFFFFFFFFFFFFFFF
        return of_data(tensor(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)))
    kind = value.meta()[1]
    if kind.kind not in "iu":
        raise ConfigError(f"seed: an integer is needed, {value.dtype} given")
    low = value.to(dtypes.uint32)
    high = zeros_like(low)
    if kind.itemsize == 8:
        high = ((value.to(dtypes.int64) >> 32) & 0xFFFFFFFF).to(dtypes.uint32)
    return of_data(stack([high, low], -1))


def of_data(words: Tensor) -> Any:
    """Keys of pairs of words, uint32 [..., 2]."""
    shape, kind = words.meta()
    if kind != np.uint32 or not shape or shape[-1] != 2:
        raise ConfigError(f"of_data: uint32 [..., 2] is needed, {kind} {list(shape)} given")
    return prims.key_of(words)


def data(key: Tensor) -> Any:
    """The words of keys, uint32 [..., 2]."""
    return prims.key_data(_keys("data", key))


def split(key: Tensor, num: int | tuple[int, ...] = 2) -> Any:
    """As many new keys, in front of no other dimension than those of ``key``."""
    shape = (num,) if isinstance(num, int) else tuple(num)
    return draw(key, shape, "keys", prims.KEY)


def fold_in(key: Tensor, number: int | Tensor) -> Any:
    """The key that belongs to ``key`` and a number of 32 bits (or to each of some)."""
    if isinstance(number, Tensor):
        return prims.threefry_blocks(_keys("fold_in", key), seed(number.to(dtypes.uint32)))
    return prims.threefry_blocks(_keys("fold_in", key), seed(int(number) & 0xFFFFFFFF))


def draw(key: Tensor, shape: tuple[int, ...], what: str, dtype: np.dtype) -> Any:
    """What ``prims.threefry_draw`` draws, by the way of the rank."""
    if any(n < 0 for n in shape):
        raise ConfigError(f"{what}: shape {list(shape)} given; sizes cannot be negative")
    return prims.threefry_draw(
        _keys(what, key), shape=tuple(shape), what=what, dtype=np.dtype(dtype),
        partitionable=partitionable(),
    )  # fmt: skip


def common_shape(
    name: str, shape: tuple[int, ...] | None, parameters: Sequence[tuple[tuple[int, ...], int]]
) -> tuple[int, ...]:
    """The shape of what ``name`` draws: that of its parameters (their shapes, and how many of the
    last dimensions are no part of it) broadcast, which is to be ``shape`` where that is given."""
    fronts = [] if shape is None else [tuple(shape)]
    for own, last in parameters:
        if len(own) < last:
            raise ConfigError(
                f"{name} requires parameters of ndim >= {last}, got ndim == {len(own)}"
            )
        fronts.append(tuple(own[: len(own) - last]))
    try:
        both = np.broadcast_shapes(*fronts)
    except ValueError:
        raise ConfigError(f"Incompatible shapes for broadcasting: shapes={fronts}") from None
    if shape is not None and both != fronts[0]:
        raise ConfigError(
            f"{name} parameter shapes must be broadcast-compatible with shape argument, and the "
            "result of broadcasting the shapes must equal the shape argument, but got result "
            f"{both} for shape argument {fronts[0]}."
        )
    return both


def _keys(where: str, key: Tensor) -> Tensor:
    if not isinstance(key, Tensor) or key.meta()[1] != prims.KEY:
        given = key.dtype if isinstance(key, Tensor) else type(key).__name__
        raise ConfigError(f"{where}: keys are needed (dt.keyed.seed(0)), {given} given")
    return key


def is_high(mode: str | None) -> bool:
    """Whether a mode asks for twice as many bits as the type has digits."""
    if mode not in (None, "low", "high"):
        raise ConfigError(f"mode {mode!r} given; expected 'high' or 'low'")
    return mode == "high"
