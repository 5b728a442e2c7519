"""``torch.nn.attention.flex_attention``: attention whose scores and masks are functions.

A function is given scores and the places of all elements at once, as tensors that broadcast;
what it computes of numbers it computes of them all.
"""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import disttrain as dt

from ...core import Tensor
from ..publish import Shim

BLOCK = 128


class AuxRequest(NamedTuple):
    """What to give beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for beside the result; None: not asked for."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Every token sees every other."""
    return token_q.new_ones((), dtype=dt.bool)


def and_masks(*mask_mods: Callable) -> Callable:
    """A mask of what all of them let through."""

    def both(b: Any, h: Any, q: Any, kv: Any) -> Any:
        found = b.new_ones((), dtype=dt.bool)
        for mask in mask_mods:
            found = found & mask(b, h, q, kv)
        return found

    return both


def or_masks(*mask_mods: Callable) -> Callable:
    """A mask of what any of them lets through."""

    def either(b: Any, h: Any, q: Any, kv: Any) -> Any:
        found = b.new_zeros((), dtype=dt.bool)
        for mask in mask_mods:
            found = found | mask(b, h, q, kv)
        return found

    return either


def _places(sizes: tuple, device: Any) -> list[Tensor]:
    """The number of each element along each of four dimensions, to be broadcast."""
    return [
        dt.arange(n, device=device).reshape([-1 if i == d else 1 for i in range(4)])
        for d, n in enumerate(sizes)
    ]


def create_mask(
    mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
) -> Tensor:  # fmt: skip
    """A mask ``(B, H, Q_LEN, KV_LEN)`` of a function of places: of booleans, or of one that
    changes scores what it makes of zeros."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _places(sizes, device)
    if len(inspect.signature(mod_fn).parameters) == 5:
        return mod_fn(dt.zeros(sizes, device=device), *places).expand(sizes)
    return dt.as_tensor(mod_fn(*places)).to(dt.bool).expand(sizes)


class BlockMask:
    """A mask as a function, and which blocks of it have anything to compute."""

    def __init__(self, seq_lengths: tuple, mask: Tensor, block: tuple, mask_mod: Callable) -> None:
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, block, mask_mod
        self._dense = mask
        counts = _per_block(mask, block)
        full = counts == block[0] * block[1]
        self.kv_num_blocks, self.kv_indices = _ordered((counts > 0) & ~full)
        self.full_kv_num_blocks, self.full_kv_indices = _ordered(full)

    @property
    def shape(self) -> tuple:
        """``(B, H, Q_LEN, KV_LEN)``."""
        return (*self._dense.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """How many elements the mask has."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """Which blocks have anything to compute, as numbers."""
        return (_per_block(self._dense, self.BLOCK_SIZE) > 0).to(dt.int32)

    def sparsity(self) -> float:
        """How many in a hundred blocks need nothing."""
        dense = self.to_dense()
        return 100.0 * (1.0 - int(dense.sum()) / dense.numel())

    def to(self, device: Any) -> BlockMask:
        """The same, on a device."""
        return BlockMask(self.seq_lengths, self._dense.to(device), self.BLOCK_SIZE, self.mask_mod)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"

    __repr__ = __str__


def _per_block(mask: Tensor, block: tuple) -> Tensor:
    """How many elements of each block are let through."""
    (q, kv), (rows, columns) = block, mask.shape[2:]
    padded = dt.nn.functional.pad(mask.to(dt.int32), (0, -columns % kv, 0, -rows % q))
    return padded.unflatten(3, (-1, kv)).unflatten(2, (-1, q)).sum((3, 5))


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row there are, and their numbers, these first."""
    order = dt.argsort(blocks.to(dt.int32), dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(dt.int32), order.to(dt.int32)


def create_block_mask(
    mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple = BLOCK, _compile: bool = False, **others: Any,
) -> BlockMask:  # fmt: skip
    """The mask that a function of places says."""
    block = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    return BlockMask((Q_LEN, KV_LEN), mask, block, mask_mod)


def _shared_heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple:
    heads, kept = query.shape[1], key.shape[1]
    if heads == kept:
        return key, value
    if not enable_gqa or heads % kept:
        raise ValueError(
            f"flex_attention: query has {heads} heads, key and value have {kept}; they must be "
            "equal, or with enable_gqa=True those of the query a multiple"
        )
    return key.repeat_interleave(heads // kept, 1), value.repeat_interleave(heads // kept, 1)


def _let_through(block_mask: BlockMask | tuple | None, places: list[Tensor]) -> Tensor | None:
    if block_mask is None:
        return None
    mask_mod = block_mask.mask_mod if isinstance(block_mask, BlockMask) else block_mask[-1]
    return None if mask_mod is noop_mask else dt.as_tensor(mask_mod(*places)).to(dt.bool)


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None,
    block_mask: Any = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """softmax(``score_mod``(query keyᵀ · scale)) value, over what ``block_mask`` lets through; a
    row that is let through nothing gives zeros. Shapes ``(batch, heads, tokens, width)``.
    ``return_lse``, ``return_aux``: also the logarithm of the sum of exponentials."""
    key, value = _shared_heads(query, key, value, enable_gqa)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = dt.float64 if query.dtype == dt.float64 else dt.float32
    scores = (query @ key.mT).to(wide) * scale
    places = _places(tuple(scores.shape), query.device)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    seen = _let_through(block_mask, places)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    best = scores.detach().amax(-1, keepdim=True)
    weights = (scores - best.masked_fill(best == -math.inf, 0.0)).exp()
    total = weights.sum(-1, keepdim=True)
    out = (weights / total.masked_fill(total == 0, 1.0)).to(value.dtype) @ value
    if return_aux is None and not return_lse:
        return out
    lse = (total.log() + best.masked_fill(best == -math.inf, 0.0)).squeeze(-1)
    if return_aux is None:
        return out, lse
    highest = best.squeeze(-1) if return_aux.max_scores else None
    return out, AuxOutput(lse if return_aux.lse else None, highest)


class FlexKernelOptions(dict):
    """Settings of kernels, which are taken and change nothing here."""


class _ModificationType(enum.Enum):
    SCORE_MOD = 1
    MASK_MOD = 2
    UNKNOWN = 3


def module() -> Shim:
    """``torch.nn.attention.flex_attention``."""
    public = (
        AuxOutput, AuxRequest, BlockMask, FlexKernelOptions, and_masks, create_block_mask,
        create_mask, flex_attention, noop_mask, or_masks, _ModificationType,
    )  # fmt: skip
    return Shim("torch.nn.attention.flex_attention").give(
        **{one.__name__: one for one in public},
        _DEFAULT_SPARSE_BLOCK_SIZE=BLOCK,
        _identity=lambda score, *places: score,
    )
