"""Philox 4x32-10: random numbers that are a function of a key and a counter.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (2011). How bits
become numbers is TensorFlow's way (its ``random_distributions.h``, as its documentation of
``stateless_uniform`` and ``Generator`` promises it), so that a seed gives TensorFlow's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MASK128 = (1 << 128) - 1


def bits(key: int, counter: int, count: int) -> np.ndarray:
    """``count`` numbers of 32 random bits, uint32: those of the blocks from ``counter`` (of 128
    bits) on, under ``key`` (of 64)."""
    blocks = -(-count // 4)
    words = _counters(counter & _MASK128, blocks)
    low, high = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(10):
        words = _round(words, np.uint64(low), np.uint64(high))
        low, high = (low + _WEYL[0]) & 0xFFFFFFFF, (high + _WEYL[1]) & 0xFFFFFFFF
    return np.stack(words, 1).astype(np.uint32).reshape(-1)[:count]


def _counters(first: int, blocks: int) -> list[np.ndarray]:
    """The four words of ``blocks`` counters, as uint64."""
    line = np.arange(blocks, dtype=np.uint64)
    low = np.uint64(first & (1 << 64) - 1) + line  # (wraps around)
    carry = (low < line).astype(np.uint64)
    high = np.uint64(first >> 64) + carry
    return [low & _LOW, low >> _HALF, high & _LOW, high >> _HALF]


def _round(c: list[np.ndarray], low: np.uint64, high: np.uint64) -> list[np.ndarray]:
    a, b = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
    return [(b >> _HALF) ^ c[1] ^ low, b & _LOW, (a >> _HALF) ^ c[3] ^ high, a & _LOW]


def key_and_counter(seed: Sequence[int]) -> tuple[int, int]:
    """The key and the counter of a stateless draw from two seeds of 64 bits: mixed, so that it does
    not matter which bits of them differ."""
    one, other = (s & (1 << 64) - 1 for s in seed)
    mixed = [int(w) for w in bits(0x02461E293EC8F720, one | other << 64, 4)]
    return mixed[0] | mixed[1] << 32, (mixed[2] | mixed[3] << 32) << 64


def uniform(key: int, counter: int, count: int, kind: Any) -> np.ndarray:
    """Numbers in [0, 1) of the floating type ``kind``: as many random bits as its fraction has."""
    if np.dtype(kind) == np.float64:
        pairs = bits(key, counter, 2 * count).astype(np.uint64)
        whole = ((pairs[::2] & np.uint64(0xFFFFF)) << _HALF) | pairs[1::2]
        return (whole | np.uint64(0x3FF0000000000000)).view(np.float64) - 1.0
    if np.dtype(kind).itemsize == 2:
        wide = bits(key, counter, count)
        half = np.dtype(kind) == np.float16
        fraction, one = (0x3FF, 15 << 10) if half else (0x7F, 127 << 7)
        found = (wide & fraction).astype(np.uint16) | np.uint16(one)
        return found.view(kind) - np.ones((), kind)
    fraction32 = bits(key, counter, count) & np.uint32(0x7FFFFF)
    return (fraction32 | np.uint32(127 << 23)).view(np.float32) - np.float32(1)


def normal(key: int, counter: int, count: int, kind: Any) -> np.ndarray:
    """Numbers of the standard normal distribution (Box and Muller's transform) of ``kind``."""
    wide = np.dtype(kind) == np.float64
    even = count + count % 2
    u = uniform(key, counter, even, np.float64 if wide else np.float32)
    least = u.dtype.type(1e-7)
    angle = u.dtype.type(2 * np.pi) * u[1::2]
    length = np.sqrt(u.dtype.type(-2) * np.log(np.maximum(u[::2], least)))
    pairs = np.stack([np.sin(angle) * length, np.cos(angle) * length], 1)
    return pairs.reshape(-1)[:count].astype(kind)


def integers(key: int, counter: int, count: int, low: int, high: int, kind: Any) -> np.ndarray:
    """Integers in [low, high) of ``kind``, by the remainder of 32 or 64 random bits."""
    if np.dtype(kind).itemsize == 8:
        pairs = bits(key, counter, 2 * count).astype(np.uint64)
        drawn = (pairs[::2] | pairs[1::2] << _HALF) % np.uint64(high - low)
        return (drawn.astype(np.int64) + low).astype(kind)
    drawn32 = bits(key, counter, count).astype(np.int64) % (high - low)
    return (drawn32 + low).astype(kind)


def full(key: int, counter: int, count: int, kind: Any) -> np.ndarray:
    """Integers of ``kind`` of which all bits are random."""
    if np.dtype(kind).itemsize == 8:
        pairs = bits(key, counter, 2 * count).astype(np.uint64)
        return (pairs[::2] | pairs[1::2] << _HALF).astype(kind)
    return bits(key, counter, count).astype(kind)


def truncated_normal(key: int, counter: int, count: int, kind: Any) -> np.ndarray:
    """As ``normal``, of those within two standard deviations. Each group of results has 256 blocks
    for every four of them, of which it takes as many as it needs."""
    wide = np.dtype(kind) == np.float64
    each, step = (2, 128) if wide else (4, 256)
    return np.concatenate([
        _within(key, counter + step * group, each, np.float64 if wide else np.float32)
        for group in range(-(-count // each))
    ] or [np.empty(0)])[:count].astype(kind)  # fmt: skip


def _within(key: int, counter: int, each: int, kind: Any) -> np.ndarray:
    size = 16
    while True:
        drawn = normal(key, counter, size, kind)
        kept = drawn[np.abs(drawn) < 2]
        if len(kept) >= each:
            return kept[:each]
        size *= 2
