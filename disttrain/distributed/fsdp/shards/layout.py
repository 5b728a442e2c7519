"""Which elements of which parameter belong to which rank: pure functions from sizes to a plan.

A parameter is cut along one dimension into chunks of ``ceil(n / W)``; the last ranks' chunks may be
shorter or empty. A *block* holds one chunk of every parameter of one kind, one after the other,
each padded to a whole chunk, so that all ranks' blocks have one size and one collective moves them.
Behind the chunks a block has one element per parameter: whether the parameter received a gradient.

Zhao et al., PyTorch FSDP, VLDB 2023; the layout per parameter is that of ``fully_shard``.
Knows no tensor and no group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import ShapeError

ALIGN = 64  # bytes; every chunk starts on a cache line


@dataclass(frozen=True)
class ShardLayout:
    """One parameter's place: cut along ``dim`` into ``chunk`` rows per rank, at ``offset`` elements
    of every rank's block."""

    name: str
    shape: tuple[int, ...]
    dim: int
    world: int
    chunk: int
    offset: int

    @property
    def rest(self) -> tuple[int, ...]:
        """The shape of one row, where the cut dimension is in front."""
        return self.shape[: self.dim] + self.shape[self.dim + 1 :]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The shape of a whole chunk."""
        return (*self.shape[: self.dim], self.chunk, *self.shape[self.dim + 1 :])

    @property
    def padded(self) -> int:
        """Elements of a chunk."""
        return self.chunk * _product(self.rest)

    @property
    def numel(self) -> int:
        return _product(self.shape)

    def rows(self, rank: int) -> tuple[int, int]:
        """The rows of ``rank``: from, to."""
        n = self.shape[self.dim]
        return min(rank * self.chunk, n), min((rank + 1) * self.chunk, n)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of ``rank``'s shard."""
        lo, hi = self.rows(rank)
        return (*self.shape[: self.dim], hi - lo, *self.shape[self.dim + 1 :])


@dataclass(frozen=True)
class BlockLayout:
    """The parameters that one collective moves. ``numel``: elements of one rank's block, without
    and with the flags behind it."""

    params: tuple[ShardLayout, ...]
    numel: int
    flagged: int


def plan_block(
    params: Sequence[tuple[str, tuple[int, ...], int]], world: int, itemsize: int
) -> BlockLayout:
    """``params``: (name, shape, dimension to cut). Raises ``ShapeError`` for what cannot be cut."""
    step = max(ALIGN // itemsize, 1)
    layouts, offset = [], 0
    for name, shape, dim in params:
        check(name, shape, dim, world)
        layout = ShardLayout(name, shape, dim, world, -(-shape[dim] // world), offset)
        layouts.append(layout)
        offset += -(-layout.padded // step) * step
    return BlockLayout(tuple(layouts), offset, offset + -(-len(layouts) // step) * step)


def check(name: str, shape: tuple[int, ...], dim: int, world: int) -> None:
    """Raise unless a parameter can be cut so."""
    if not shape:
        raise ShapeError(
            f"fully_shard: parameter {name!r} has no dimensions (a scalar parameter), so it cannot "
            f"be cut into {world} shards; change {name} to a 1D tensor with numel equal to 1"
        )
    if not 0 <= dim < len(shape):
        raise ShapeError(
            f"fully_shard: parameter {name!r} of shape {list(shape)} was to be cut along dimension "
            f"{dim}; needed is one of 0 to {len(shape) - 1}"
        )
    if dim and shape[dim] % world:
        raise ShapeError(
            f"fully_shard: parameter {name!r} of shape {list(shape)} was to be cut along dimension "
            f"{dim} into {world} shards: FSDP does not support uneven sharding on dim {dim}; "
            "choose a dimension that divides evenly, or dimension 0"
        )


def place(source: np.ndarray, target: np.ndarray, layout: ShardLayout, add: bool = False) -> None:
    """Write the full array ``source`` into ``target``: the parameter's chunks in all ranks' blocks,
    as ``chunks_of`` gives them."""
    if layout.dim:
        _put(_apart(source, layout), target, add)
        return
    n, chunk = layout.shape[0], layout.chunk
    whole = n // chunk if chunk else 0
    _put(source[: whole * chunk].reshape(whole, chunk, *layout.rest), target[:whole], add)
    if whole < layout.world and n - whole * chunk:
        _put(source[whole * chunk :], target[whole, : n - whole * chunk], add)


def assemble(blocks: np.ndarray, layout: ShardLayout, out: np.ndarray) -> None:
    """The inverse of ``place``: all ranks' chunks into the full ``out``."""
    if layout.dim:
        np.copyto(_apart(out, layout), blocks, casting="unsafe")
        return
    n, chunk = layout.shape[0], layout.chunk
    whole = n // chunk if chunk else 0
    if whole:
        rows = out[: whole * chunk].reshape(whole, chunk, *layout.rest)
        np.copyto(rows, blocks[:whole], casting="unsafe")
    if whole < layout.world and n - whole * chunk:
        np.copyto(out[whole * chunk :], blocks[whole, : n - whole * chunk], casting="unsafe")


def own_part(full: np.ndarray, layout: ShardLayout, rank: int) -> np.ndarray:
    """The view of ``rank``'s elements in the full array."""
    lo, hi = layout.rows(rank)
    return full[(slice(None),) * layout.dim + (slice(lo, hi),)]


def chunks_of(flat: np.ndarray, layout: ShardLayout, size: int) -> np.ndarray:
    """The view (world, *shape of a whole chunk) of one parameter in ``flat``, which holds all
    ranks' blocks of ``size`` elements."""
    blocks = flat.reshape(layout.world, size)[:, layout.offset : layout.offset + layout.padded]
    return blocks.reshape(layout.world, *layout.chunk_shape)


def whole_chunks(layout: ShardLayout) -> tuple[int, ...] | None:
    """The shape (world, *chunk) that the full array has as chunks, where all are whole and it is
    no more than a view."""
    if layout.dim or layout.chunk * layout.world != layout.shape[0]:
        return None
    return (layout.world, *layout.chunk_shape)


def shard_span(layout: ShardLayout, rank: int) -> tuple[int, int, tuple[int, ...]]:
    """Where ``rank``'s shard lies in its own block (from, to), and its shape."""
    shape = layout.local_shape(rank)
    return layout.offset, layout.offset + _product(shape), shape


def shard_of(block: np.ndarray, layout: ShardLayout, rank: int) -> np.ndarray:
    """The view of ``rank``'s shard in its own block, in the shape of the shard."""
    lo, hi, shape = shard_span(layout, rank)
    return block[lo:hi].reshape(shape)


def _apart(full: np.ndarray, layout: ShardLayout) -> np.ndarray:
    """The view (world, *shape of a chunk) of a full array that is cut evenly."""
    d, shape = layout.dim, layout.shape
    split = full.reshape(*shape[:d], layout.world, layout.chunk, *shape[d + 1 :])
    return np.moveaxis(split, d, 0)


def _put(source: np.ndarray, target: np.ndarray, add: bool) -> None:
    if add:
        np.add(target, source, out=target, casting="unsafe")
    else:
        np.copyto(target, source, casting="unsafe")


def _product(values: Sequence[int]) -> int:
    n = 1
    for v in values:
        n *= v
    return n
